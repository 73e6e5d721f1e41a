// Included before the default probe is defined: it is bound when the VCL is loaded.
backend edge {
    .host = "203.0.113.200";
    .port = "443";
    .proxy_header = 1;
}
