"""The report of an execution: its data, the page that shows it, and the tables for a terminal."""
