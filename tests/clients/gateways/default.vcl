# Varnish with its built-in rules, which cache what has no rule. $NAME is replaced by tests/clients/gateways.py.
vcl 4.1;
backend server { .host = "127.0.0.1"; .port = "$SERVER"; .host_header = "127.0.0.1:$SERVER"; }
backend below { .host = "127.0.0.1"; .port = "$BELOW"; }
sub vcl_recv {
    if (req.url ~ "^/platform/") {
        set req.url = regsub(req.url, "^/platform", "");
        set req.backend_hint = below;
    }
    # Varnish delivers a stream in parts of 16 KiB, and holds back single events.
    if (req.url == "/operator/events/tail") { return (pipe); }
    set req.http.Host = "127.0.0.1:$SERVER";
    # The built-in rules pass what has this header. A cache that did not would be shared by all callers.
    if (req.http.Authorization) { set req.http.X-Authorization = req.http.Authorization; unset req.http.Authorization; }
}
sub vcl_backend_fetch {
    if (bereq.http.X-Authorization) {
        set bereq.http.Authorization = bereq.http.X-Authorization;
        unset bereq.http.X-Authorization;
    }
}
sub vcl_deliver { set resp.http.X-Cache = obj.hits; }
