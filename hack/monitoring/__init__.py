"""What Prometheus and Grafana get: alerts with their runbooks, what to scrape, dashboards. `generate` writes it out.

`alert` says what an alert is; `controlleralerts`, `apialerts` and `gangalerts` which there are. `rules` and `scrape`
make files with and without the Prometheus operator, `runbooks` pages; `panel` and `dashboards` are Grafana's.
`component` has all of it.
"""
