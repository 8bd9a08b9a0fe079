"""Where the API server is and which credentials to present there.

May import `util`, and is the only place that imports the `kubernetes` package. It sends no requests. Start reading
with `kubeconfig.py`.
"""
