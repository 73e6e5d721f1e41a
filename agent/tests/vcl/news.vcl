vcl 4.0;

// A news site: the default probe judges everything that says nothing else.
import std;
import directors;
include "news-edge.vcl";

probe default {
    .url = "/varnish-check";
    .timeout = 1s;
    .interval = 10s;
    .window = 5;
    .threshold = 3;
}

backend app01 {
    .host = "198.51.100.1";
    .port = "8001";
    .first_byte_timeout = 30s; // slow pages
    .host_header = "app01.news.example";
}

backend app02 {
    .host = "198.51.100.2";
    .port = "8002";
    .first_byte_timeout = 30s; // slow pages
    .host_header = "app02.news.example";
}

backend app03 {
    .host = "198.51.100.3";
    .port = "8003";
    .first_byte_timeout = 30s; // slow pages
    .host_header = "app03.news.example";
}

backend app04 {
    .host = "198.51.100.4";
    .port = "8004";
    .first_byte_timeout = 30s; // slow pages
    .probe = default;
}

backend app05 {
    .host = "198.51.100.5";
    .port = "8005";
    .first_byte_timeout = 30s; // slow pages
    .host_header = "app05.news.example";
}

backend app06 {
    .host = "198.51.100.6";
    .port = "8006";
    .first_byte_timeout = 30s; // slow pages
    .host_header = "app06.news.example";
}

backend app07 {
    .host = "198.51.100.7";
    .port = "8007";
    .first_byte_timeout = 30s; // slow pages
    .host_header = "app07.news.example";
}

backend app08 {
    .host = "198.51.100.8";
    .port = "8008";
    .first_byte_timeout = 30s; // slow pages
    .probe = default;
}

backend app09 {
    .host = "198.51.100.9";
    .port = "8009";
    .first_byte_timeout = 30s; // slow pages
    .host_header = "app09.news.example";
}

backend app10 {
    .host = "198.51.100.10";
    .port = "8010";
    .first_byte_timeout = 30s; // slow pages
    .host_header = "app10.news.example";
}

backend app11 {
    .host = "198.51.100.11";
    .port = "8011";
    .first_byte_timeout = 30s; // slow pages
    .host_header = "app11.news.example";
}

backend app12 {
    .host = "198.51.100.12";
    .port = "8012";
    .first_byte_timeout = 30s; // slow pages
    .probe = default;
}

sub vcl_init {
    new apps = directors.random();
    apps.add_backend(app01, 1.0);
    apps.add_backend(app02, 1.0);
    apps.add_backend(app03, 1.0);
    apps.add_backend(app04, 1.0);
    apps.add_backend(app05, 1.0);
    apps.add_backend(app06, 1.0);
    apps.add_backend(app07, 1.0);
    apps.add_backend(app08, 1.0);
    apps.add_backend(app09, 1.0);
    apps.add_backend(app10, 1.0);
    apps.add_backend(app11, 1.0);
    apps.add_backend(app12, 1.0);
}

acl office +log -table {
    "203.0.113.0"/24; # the "office"
}

sub vcl_recv {
    if (req.http.host == "edge.news.example") { set req.backend_hint = edge; return (pass); }
    set req.backend_hint = apps.backend();
    if (client.ip ~ office) { set req.http.X-Office = "}"; }
    call normalise;
}

sub normalise {
    if (req.url ~ "[{}]") { set req.url = regsuball(req.url, "[{}]", ""); }
    set req.http.cookie = regsub(req.http.cookie, "(^|; )_ga=[^;]*", "");
}
