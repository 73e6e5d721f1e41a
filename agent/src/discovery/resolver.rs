//! The DNS itself, by hickory-resolver: the only file that names it.

use std::net::IpAddr;
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use tokio::time::timeout;

use super::dns::{self, Followed};
use super::{Answer, Question, Records};
use crate::fleet::Dns;

/// Hosts of SRV records that are followed; the first ones of the answer.
const SERVICES_MAX: usize = 4096;

/// Asks for names.
pub(super) struct Resolver {
    resolver: TokioResolver,
    limit: Duration,
}

/// What a look-up came to: whom the name means, and for how long that is to be believed at most.
pub(super) type Resolved = Result<(Answer, Duration), String>;

impl Resolver {
    /// Asks the servers that are configured, or the system's.
    ///
    /// # Errors
    ///
    /// /etc/resolv.conf cannot be read.
    pub(super) fn new(dns: &Dns) -> Result<Self, String> {
        let limit = Duration::from_nanos(dns.timeout_ns);
        let mut builder = if dns.resolvers.is_empty() {
            TokioResolver::builder_tokio()
                .map_err(|error| format!("/etc/resolv.conf cannot be used: {error}"))?
        } else {
            let server = |address: &std::net::SocketAddr| {
                let mut server = NameServerConfig::udp_and_tcp(address.ip());
                for connection in &mut server.connections {
                    connection.port = address.port();
                }
                server
            };
            let servers = dns.resolvers.iter().map(server).collect();
            let config = ResolverConfig::from_name_servers(servers);
            let mut builder =
                TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
            builder.options_mut().use_hosts_file = ResolveHosts::Never;
            builder
        };
        let options: &mut ResolverOpts = builder.options_mut();
        // A first try and one more fit into the limit; how long an answer holds is ours to say.
        (options.timeout, options.attempts, options.cache_size) = (limit / 3, 1, 0);
        let resolver = builder.build().map_err(|error| error.to_string())?;
        Ok(Self { resolver, limit })
    }

    /// Whom the name means now.
    ///
    /// # Errors
    ///
    /// There is no such name, it has no such records, or nobody answers in time: in one line.
    pub(super) async fn resolve(&self, question: &Question) -> Resolved {
        let asked = async {
            match question.records {
                Records::Srv => self.services(question).await,
                _ => {
                    let name = name(&question.name)?;
                    let (addresses, ttl) = self.addresses(&name, question.records).await?;
                    Ok((dns::of_addresses(question, &addresses), ttl))
                }
            }
        };
        let limit = humantime::format_duration(self.limit);
        match timeout(self.limit, asked).await {
            Err(_) => Err(format!("no answer within {limit}")),
            Ok(Ok((answer, _))) if answer.is_empty() => {
                Err("the answer has no address that can be a backend".to_owned())
            }
            Ok(resolved) => resolved,
        }
    }

    async fn addresses(
        &self,
        name: &Name,
        records: Records,
    ) -> Result<(Vec<IpAddr>, Duration), String> {
        let (v4, v6) = tokio::join!(
            self.family(name, (records != Records::Aaaa).then_some(RecordType::A)),
            self.family(name, (records != Records::A).then_some(RecordType::AAAA)),
        );
        // A family without records is none; one that nobody answers for may have some.
        let found: Vec<(IpAddr, u32)> = match (v4, v6) {
            (Ok(v4), Ok(v6)) => v4.into_iter().chain(v6).collect(),
            (Ok(only), Err(Missing::None(_))) | (Err(Missing::None(_)), Ok(only))
                if !only.is_empty() =>
            {
                only
            }
            (Err(Missing::Failed(why)), _) | (_, Err(Missing::Failed(why))) => return Err(why),
            (Err(Missing::None(why)), _) | (_, Err(Missing::None(why))) => return Err(why),
        };
        let ttl = found.iter().map(|(_, ttl)| *ttl).min().unwrap_or(0);
        let addresses = found.into_iter().map(|(address, _)| address).collect();
        Ok((addresses, Duration::from_secs(ttl.into())))
    }

    async fn family(
        &self,
        name: &Name,
        records: Option<RecordType>,
    ) -> Result<Vec<(IpAddr, u32)>, Missing> {
        let Some(records) = records else {
            return Ok(Vec::new());
        };
        let found = self.look_up(name, records).await?;
        let addresses = found.into_iter().filter_map(|(data, ttl)| match data {
            RData::A(address) => Some((IpAddr::V4(address.0), ttl)),
            RData::AAAA(address) => Some((IpAddr::V6(address.0), ttl)),
            _ => None,
        });
        Ok(addresses.collect())
    }

    /// Of the hosts that the SRV records name, those of the first priority.
    async fn services(&self, question: &Question) -> Resolved {
        let name = name(&question.name)?;
        let found = self.look_up(&name, RecordType::SRV).await.map_err(Missing::into_line)?;
        let services: Vec<_> = found
            .into_iter()
            .filter_map(|(data, ttl)| match data {
                RData::SRV(service) => Some((service, ttl)),
                _ => None,
            })
            .collect();
        let first = services.iter().map(|(service, _)| service.priority).min();
        let mut ttl = services.iter().map(|(_, ttl)| *ttl).min().unwrap_or(0);
        let mut followed = Vec::new();
        let of_first = services.iter().filter(|(it, _)| Some(it.priority) == first);
        for (service, _) in of_first.take(SERVICES_MAX) {
            if service.target.is_root() {
                // RFC 2782: the service is decidedly not available here.
                return Err("the SRV record says that there is no such service".to_owned());
            }
            let (addresses, own) = self
                .addresses(&service.target, Records::Any)
                .await
                .map_err(|why| format!("{}: {why}", service.target))?;
            ttl = ttl.min(u32::try_from(own.as_secs()).unwrap_or(u32::MAX));
            followed.push(Followed { port: service.port, weight: service.weight, addresses });
        }
        Ok((dns::of_services(question, &followed), Duration::from_secs(ttl.into())))
    }

    async fn look_up(
        &self,
        name: &Name,
        records: RecordType,
    ) -> Result<Vec<(RData, u32)>, Missing> {
        let found = self.resolver.lookup(name.clone(), records).await.map_err(Missing::from)?;
        Ok(found.answers().iter().map(|record| (record.data.clone(), record.ttl)).collect())
    }
}

/// Why there are no records.
enum Missing {
    /// The DNS says so.
    None(String),
    /// Nobody could say.
    Failed(String),
}

impl Missing {
    fn into_line(self) -> String {
        match self {
            Self::None(why) | Self::Failed(why) => why,
        }
    }
}

impl From<NetError> for Missing {
    fn from(error: NetError) -> Self {
        match error {
            NetError::Dns(DnsError::NoRecordsFound(no)) => match no.response_code {
                ResponseCode::NXDomain => Self::None("there is no such name (NXDOMAIN)".to_owned()),
                ResponseCode::NoError => Self::None("the name has no such records".to_owned()),
                code => Self::Failed(format!("the resolver answers {code}")),
            },
            NetError::Dns(DnsError::ResponseCode(code)) => {
                Self::Failed(format!("the resolver answers {code}"))
            }
            NetError::Timeout => Self::Failed("no answer in time".to_owned()),
            error => {
                let text = error.to_string().replace(char::is_control, " ");
                Self::Failed(format!("the resolver cannot be asked: {text}"))
            }
        }
    }
}

fn name(text: &str) -> Result<Name, String> {
    Name::from_utf8(text).map_err(|error| error.to_string())
}
