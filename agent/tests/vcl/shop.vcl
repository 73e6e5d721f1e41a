vcl 4.1;

# A shop behind two data centres. "Comments { may have /* anything in them.
import std;
import directors;

/* The block below is not a definition:
 * backend fake { .host = "192.0.2.99"; }
 * probe fake { .url = "/"; }
 */

// probe also_fake { }

probe health {
    .request =
        "GET /healthz HTTP/1.1"
        "Host: shop.example.com"
        "User-Agent: Varnish Health Probe"
        "Connection: close";
    .interval = 2s;
    .timeout = 800ms;
    .window = 10;
    .threshold = 6;
    .initial = 5;
    .expected_response = 204;
}

probe static-probe {
    .url = "/ping?a={b}&c=\";  # a backslash ends nothing: } "
    .interval = 1.5m;
}

backend web1 {
    .host = "192.0.2.11";
    .port = "8080";
    .host_header = "shop.example.com";
    .probe = health;
    .connect_timeout = 0.5s;
    .first_byte_timeout = 60s;
    .between_bytes_timeout = 10s;
    .max_connections = 800;
}

backend web2 {
    .host = "192.0.2.12";
    .port = "8080";
    .host_header = "shop.example.com";
    .probe = health;
}

backend static {
    .host = "[2001:db8::21]:81";
    .probe = static-probe;
}

backend admin {
    .host = "192.0.2.31";
    .proxy_header = 2;
    .probe = {
        .url = "/admin/health";
        .threshold = 2;
    }
}

backend nowhere none;

acl purgers {
    "localhost";
    "192.0.2.0"/24;
    ! "192.0.2.23";
    "2001:db8::"/32;
}

C{
    #include <stdlib.h>
    static const char *braces = "}}}} \" }";   /* } */
    static int answer(void) { return 42; }
}C

sub vcl_init {
    new web = directors.round_robin();
    web.add_backend(web1);
    web.add_backend(web2);
    new files = directors.fallback();
    files.add_backend(static);
    files.add_backend(nowhere);
}

sub vcl_recv {
    # A brace in a string, a long string and a regular expression: } } }
    set req.http.X-Brace = "}";
    set req.http.X-Long = {"
        } sub fake { backend inner { .host = "x"; } " }
    "};
    set req.http.X-Longer = """
        }" "} probe inner { }
    """;
    if (req.url ~ "^/admin(/|\?|$)") {
        set req.backend_hint = admin;
    } elsif (req.url ~ "\.(?:css|js|png)(\?.*)?$") {
        unset req.http.Cookie;
        set req.backend_hint = files.backend();
    } else {
        set req.backend_hint = web.backend();
    }
    if (req.method == "PURGE") {
        if (client.ip !~ purgers) {
            return (synth(405, "Not allowed."));
        }
        return (purge);
    }
    if (std.healthy(req.backend_hint)) {
        set req.grace = 10s;
    }
    C{ if (answer() == 42) { /* } */ } }C
}

sub vcl_backend_response {
    if (beresp.status >= 500 && bereq.retries < 2) {
        return (retry);
    }
    set beresp.ttl = 1h;
    set beresp.grace = 6h;
    return (deliver);
}

sub vcl_synth {
    set resp.http.Content-Type = "text/html; charset=utf-8";
    synthetic( {"<!DOCTYPE html>
<html><head><style>body { color: #333 }</style></head>
<body><h1>Error "} + resp.status + {"</h1><script>if (a) { b(1) }</script></body></html>
"} );
    return (deliver);
}
