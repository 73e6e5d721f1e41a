//! Mistakes in pools and their backends.

use super::{Case, with};

pub(super) fn cases() -> Vec<Case> {
    let backends = "backends = [\"192.0.2.1:80\", \"192.0.2.2:80\"]";
    vec![
        (
            "pool without backends",
            with(backends, ""),
            "web.toml:4:7: pool.web: the pool has no backends; add backends = [\"ADDRESS:PORT\", \
             …], backends_file, backends_dns or backends_range; or allow_empty = true",
        ),
        (
            "pool with an empty list",
            with(backends, "backends = []"),
            "web.toml:4:7: pool.web: the pool has no backends; add backends =",
        ),
        (
            "unknown probe",
            with("probe = \"web\"", "probe = \"wbe\""),
            "web.toml:5:9: pool.web.probe: there is no probe \"wbe\"; did you mean \"web\"?",
        ),
        (
            "pool without probe",
            with("probe = \"web\"\n", ""),
            "web.toml:4:7: pool.web: the pool has no probe; add probe = \"NAME\"; known are \
             \"web\"",
        ),
        (
            "unknown pool",
            with("pool = \"web\"", "pool = \"static\""),
            "web.toml:11:8: service.web.pool: there is no pool \"static\"; known are \"web\"",
        ),
        (
            "backend twice",
            with(backends, "backends = [\n\"192.0.2.1:80\",\n\"192.0.2.1:80\"]"),
            "web.toml:8:1: pool.web.backends[1]: backend 192.0.2.1:80 is in the pool already (line \
             7); remove or change one of the two",
        ),
        (
            "backend name twice",
            with(
                backends,
                "backends = [\n{ name = \"b\", address = \"192.0.2.1:80\" },\n\
                 { name = \"b\", address = \"192.0.2.2:80\" }]",
            ),
            "web.toml:8:1: pool.web.backends[1]: backend name \"b\" is in the pool already (line \
             7)",
        ),
        (
            "unknown key of a backend",
            with(backends, "backends = [{ adress = \"192.0.2.1:80\" }]"),
            "web.toml:6:15: pool.web.backends[0].adress: unknown key \"adress\"; did you mean \
             \"address\"?",
        ),
        (
            "misspelt key that must be there",
            with("pool = \"web\"", "pol = \"web\""),
            "web.toml:11:1: service.web.pol: unknown key \"pol\"; did you mean \"pool\"?",
        ),
        (
            "weight out of range",
            with(backends, "backends = [{ address = \"192.0.2.1:80\", weight = 1001 }]"),
            "web.toml:6:50: pool.web.backends[0].weight: 1001 is out of range; write a whole \
             number from 1 to 1000",
        ),
        (
            "backend without port",
            with(backends, "backends = [\"192.0.2.1\"]"),
            "web.toml:6:13: pool.web.backends[0]: \"192.0.2.1\" is not ADDRESS:PORT; add the port, \
             such as \"192.0.2.1:80\"",
        ),
        (
            "host name as backend",
            with(backends, "backends = [\"web1.example.com:80\"]"),
            "web.toml:6:13: pool.web.backends[0]: \"web1.example.com:80\" is not ADDRESS:PORT; \
             write it as \"192.0.2.1:80\" or \"[2001:db8::1]:80\"; a host name belongs into \
             backends_dns",
        ),
        (
            "range that goes down",
            with(backends, "backends_range = \"10.0.0.9-10.0.0.1:80\""),
            "web.toml:6:18: pool.web.backends_range: \"10.0.0.9-10.0.0.1:80\" goes down or changes \
             its family; write the lower address first, both of one family",
        ),
        (
            "range that meets the list",
            with(backends, "backends = [\"10.0.0.2:80\"]\nbackends_range = \"10.0.0.0/30:80\""),
            "web.toml:7:18: pool.web.backends_range: backend 10.0.0.2:80 is in the pool already \
             (line 6)",
        ),
        (
            "backends_file that is not there",
            with(backends, "backends_file = \"absent.list\""),
            "web.toml:6:17: pool.web.backends_file: absent.list cannot be read: No such file or \
             directory (os error 2); name a file that exists",
        ),
    ]
}
