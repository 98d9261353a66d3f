"""An embedded stand-in for AWS on one machine. It knows nothing of campaigns."""
