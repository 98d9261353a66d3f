"""Lambda handlers: environment, event, one call, a typed result. Logic lives in ``volumetry``; AWS is touched here."""
