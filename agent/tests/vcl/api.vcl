vcl 4.1;
#!/not/a/shebang
import xkey; import std;import vsthrottle;
/**/ probe api { .url="/v1/health";.interval=500ms;.timeout=0.4s;.window=4;.threshold=2;.initial=99;}

backend api1 { .host = "10.1.1.1"; .port = "3000"; .probe = api; /* node 1 */ }
backend api2 { .host = "10.1.2.1"; .port = "3000"; .probe = api; /* node 2 */ }
backend api3 { .host = "10.1.3.1"; .port = "3000"; .probe = api; /* node 3 */ }
backend api4 { .host = "10.1.4.1"; .port = "3000"; .probe = api; /* node 4 */ }
backend api5 { .host = "10.1.5.1"; .port = "3000"; .probe = api; /* node 5 */ }
backend api6 { .host = "10.1.6.1"; .port = "3000"; .probe = api; /* node 6 */ }
backend api7 { .host = "10.1.7.1"; .port = "3000"; .probe = api; /* node 7 */ }
backend api8 { .host = "10.1.8.1"; .port = "3000"; .probe = api; /* node 8 */ }
backend legacy { # no probe: always healthy
	.host = {"10.2.0.1"};
	.port = """8080""";
	.max_connections = 20;
}

sub pick_1 {
	if (req.url ~ "^/v1/shard1/" && !req.http.X-Skip) {
		set req.backend_hint = api1;
		if (vsthrottle.is_denied("key:" + client.ip, 15, 10s)) { return (synth(429, "Too Many {Requests}")); }
	}
}

sub pick_2 {
	if (req.url ~ "^/v1/shard2/" && !req.http.X-Skip) {
		set req.backend_hint = api2;
		if (vsthrottle.is_denied("key:" + client.ip, 15, 10s)) { return (synth(429, "Too Many {Requests}")); }
	}
}

sub pick_3 {
	if (req.url ~ "^/v1/shard3/" && !req.http.X-Skip) {
		set req.backend_hint = api3;
		if (vsthrottle.is_denied("key:" + client.ip, 15, 10s)) { return (synth(429, "Too Many {Requests}")); }
	}
}

sub pick_4 {
	if (req.url ~ "^/v1/shard4/" && !req.http.X-Skip) {
		set req.backend_hint = api4;
		if (vsthrottle.is_denied("key:" + client.ip, 15, 10s)) { return (synth(429, "Too Many {Requests}")); }
	}
}

sub pick_5 {
	if (req.url ~ "^/v1/shard5/" && !req.http.X-Skip) {
		set req.backend_hint = api5;
		if (vsthrottle.is_denied("key:" + client.ip, 15, 10s)) { return (synth(429, "Too Many {Requests}")); }
	}
}

sub pick_6 {
	if (req.url ~ "^/v1/shard6/" && !req.http.X-Skip) {
		set req.backend_hint = api6;
		if (vsthrottle.is_denied("key:" + client.ip, 15, 10s)) { return (synth(429, "Too Many {Requests}")); }
	}
}

sub pick_7 {
	if (req.url ~ "^/v1/shard7/" && !req.http.X-Skip) {
		set req.backend_hint = api7;
		if (vsthrottle.is_denied("key:" + client.ip, 15, 10s)) { return (synth(429, "Too Many {Requests}")); }
	}
}

sub pick_8 {
	if (req.url ~ "^/v1/shard8/" && !req.http.X-Skip) {
		set req.backend_hint = api8;
		if (vsthrottle.is_denied("key:" + client.ip, 15, 10s)) { return (synth(429, "Too Many {Requests}")); }
	}
}

sub vcl_recv {
	call pick_1;
	call pick_2;
	call pick_3;
	call pick_4;
	call pick_5;
	call pick_6;
	call pick_7;
	call pick_8;
	if (req.url ~ "^/legacy") {
		set req.backend_hint = legacy; # {
	}
	if (req.http.X-Json == {"{"a": {1} }"}) { return (pass); }
}

sub vcl_backend_error {
	set beresp.http.Content-Type = "application/json";
	synthetic({"{"error":{"code":503}}"});
	return (deliver);
}

sub vcl_deliver {
	unset resp.http.Server; # } 
	set resp.http.X-Served-By = "varnish {1}";
	if (obj.hits > 0) {
		set resp.http.X-Cache = "HIT";
	} else {
		set resp.http.X-Cache = "MISS";
	}
}
