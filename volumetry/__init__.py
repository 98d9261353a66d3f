"""The domain: what a campaign is, what it plans, and what its evidence says. Knows no AWS."""
