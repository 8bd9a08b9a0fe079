"""The dashboard: the jobs of a cluster in a browser, with the rights of the person who looks at them.

It renders what `client` reads and has no diagnosis and no rights of its own. `users` holds the connection of each
person, `guard` decides about every request before a page sees it, `feeds` follows jobs with informers for all browsers
of a person, and each page is a module of its own below `pages`. Start with `app.create_app`.
"""
