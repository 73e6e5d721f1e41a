//! Mistakes in services, in the agent's own settings, and in what it is attached to.

use super::{Case, with};

pub(super) fn cases() -> Vec<Case> {
    vec![
        (
            "VIP with a port",
            with("\"198.51.100.1\"", "\"198.51.100.1:80\""),
            "web.toml:9:11: service.web.address: \"198.51.100.1:80\" is not an IP address; write \
             an IP address without a port, or a prefix of them",
        ),
        (
            "port out of range",
            with("port = 80", "port = 65536"),
            "web.toml:10:8: service.web.port: 65536 is out of range; write a whole number from 1 \
             to 65535",
        ),
        (
            "table size that is not prime",
            with("port = 80", "port = 80\ntable_size = 1000"),
            "web.toml:11:14: service.web.table_size: 1000 is not a prime; write 1009, or 0 to have \
             one chosen",
        ),
        (
            "table smaller than the pool",
            with("port = 80", "port = 80\ntable_size = 2")
                .replace("\"192.0.2.2:80\"", "\"192.0.2.2:80\", \"192.0.2.3:80\""),
            "web.toml:11:14: service.web.table_size: 2 slots cannot hold 3 backends; write 0 or at \
             least 1021",
        ),
        (
            "service twice",
            with(
                "[agent]",
                "[service.zwei]\naddress = \"198.51.100.1\"\nport = 80\npool = \"web\"",
            ),
            "web.toml:13:10: service.zwei: 198.51.100.1 port 80 tcp belongs to service \"web\" \
             already; give one of the two another address or port",
        ),
        (
            "odd instance name",
            with("[agent]", "[agent]\ninstance = \"a/b\""),
            "web.toml:14:12: agent.instance: \"a/b\" has the odd character \"/\"; name it with 1 \
             to 64 letters, digits, \"-\", \"_\"",
        ),
        (
            "relative pin directory",
            with("[agent]", "[agent]\npin_directory = \"bpf\""),
            "web.toml:14:17: agent.pin_directory: \"bpf\" is not an absolute path; begin it with \
             \"/\"",
        ),
        (
            "metrics for everybody",
            with("[agent]", "[agent]\nmetrics = \"0.0.0.0:9990\""),
            "web.toml:14:11: agent.metrics: 0.0.0.0:9990 is not a loopback address: metrics name \
             every backend, and whoever reaches the port reads them; write \"127.0.0.1:PORT\"",
        ),
        (
            "metrics without a port",
            with("[agent]", "[agent]\nmetrics = \"localhost\""),
            "web.toml:14:11: agent.metrics: \"localhost\" is no ADDRESS:PORT; write \
             \"127.0.0.1:9990\" or \"[::1]:9990\"",
        ),
        (
            "metrics at a port that changes",
            with("[agent]", "[agent]\nmetrics = \"[::1]:0\""),
            "web.toml:14:11: agent.metrics: port 0 is another one at each start; write",
        ),
        (
            "series without metrics",
            with("[agent]", "[agent]\nmetrics_per_target = true"),
            "web.toml:14:22: agent.metrics_per_target: has no meaning without metrics; add metrics",
        ),
        (
            "history that holds nothing",
            with("[agent]", "[agent]\nhistory_bytes = 4096"),
            "web.toml:14:17: agent.history_bytes: 4096 is out of range; write a whole \
             number from 1048576 to 2147483648",
        ),
        (
            "history that is a word",
            with("[agent]", "[agent]\nhistory = \"on\""),
            "web.toml:14:11: agent.history: must be true or false, but is text",
        ),
        (
            "relative state directory",
            with("[agent]", "[agent]\nstate_directory = \"state\""),
            "web.toml:14:19: agent.state_directory: \"state\" is not an absolute path; begin it",
        ),
        (
            "log format that there is not",
            with("[agent]", "[agent]\nlog_format = \"jsn\""),
            "web.toml:14:14: agent.log_format: \"jsn\" is not a choice; write \"text\" or \"json\"",
        ),
        (
            "single brackets around attach",
            with("[agent]", "[attach]\ninterface = \"eth0\""),
            "web.toml:13:1: attach: must be an array, but is a table; write [[…]] with double \
             brackets",
        ),
        (
            "attach without interface",
            with("[agent]", "[[attach]]\nprogram = \"tc\""),
            "attach[0]: attach has no interface; add interface = \"NAME\"",
        ),
        (
            "xdp_mode on tc",
            with(
                "[agent]",
                "[[attach]]\ninterface = \"eth0\"\nprogram = \"tc\"\nxdp_mode = \"auto\"",
            ),
            "web.toml:16:12: attach[0].xdp_mode: xdp_mode has no meaning for program \"tc\"; \
             remove it, or write program = \"xdp\"",
        ),
        (
            "interface name that cannot be",
            with("[agent]", "[[attach]]\ninterface = \"a very long name\""),
            "web.toml:14:13: attach[0].interface: \"a very long name\" is no interface name; write \
             one that `ip link` shows",
        ),
        (
            "nothing at all",
            String::new(),
            "web.toml:1:1: there is no pool: nothing to probe; add a [probe.NAME] and a \
             [pool.NAME]",
        ),
    ]
}
