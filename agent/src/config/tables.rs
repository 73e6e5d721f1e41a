//! The size and place of each service's tables of slots.

use sickbay_core::maglev::{Member, SLOTS_PER_LIGHTEST, TABLE_SIZES, table_size};

use super::pools::DraftPool;
use super::problem::Report;
use super::services::DraftService;
use super::settings::Settings;

/// Slots in the largest table.
pub(super) const SLOTS_MAX: u32 = TABLE_SIZES[TABLE_SIZES.len() - 1];
/// Slots of all tables together: 1 GiB of map memory.
const SLOTS_TOTAL_MAX: u64 = 1 << 27;

/// Where the tables of one service stand, each with its first slot and its slot count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tables {
    pub(super) own: (u32, u32),
    /// That of its backup pool.
    pub(super) backup: Option<(u32, u32)>,
}

/// Every service's tables, in the services' order: first all of the pools', then all of the backup
/// pools', so that a backup added or taken away moves no other table.
pub(super) fn place(
    settings: &Settings,
    services: &[DraftService],
    pools: &[DraftPool],
    report: &mut Report<'_>,
) -> Vec<Tables> {
    let mut total: u64 = 0;
    let mut next = |size: u32| {
        let first = u32::try_from(total).unwrap_or(0);
        total += u64::from(size);
        (first, size)
    };
    let weights = |pool: usize| -> Vec<u32> {
        pools[pool].members.iter().map(|member| member.weight).collect()
    };
    let mut tables: Vec<Tables> = settings
        .service
        .keys()
        .zip(services)
        .map(|(name, service)| {
            let size = checked_size(name, service.table_size, &weights(service.pool), report);
            Tables { own: next(size), backup: None }
        })
        .collect();
    for (table, service) in tables.iter_mut().zip(services) {
        table.backup = service.backup.map(|pool| next(chosen(&weights(pool))));
    }
    if SLOTS_TOTAL_MAX < total {
        let problem = format!("all tables together have {total} slots; {SLOTS_TOTAL_MAX} fit");
        report.error(&["service".into()], problem, "set table_size, or use several instances");
    }
    tables
}

/// The size of service `name`'s own table; that it is too small is reported.
fn checked_size(name: &str, given: Option<u32>, weights: &[u32], report: &mut Report<'_>) -> u32 {
    let chosen = chosen(weights);
    let size = given.unwrap_or(chosen);
    let place = ["service".into(), name.into(), "table_size".into()];
    let mend = format!("write 0 or at least {chosen}");
    let lightest = lightest_slots(weights, size);
    if (size as usize) < weights.len() {
        let problem = format!("{size} slots cannot hold {} backends", weights.len());
        report.error(&place, problem, mend);
    } else if lightest < SLOTS_PER_LIGHTEST {
        let problem = format!(
            "{size} slots give the lightest of {} backends {lightest}: shares are uneven by up to \
             one part in {}",
            weights.len(),
            lightest.max(1),
        );
        let mend = match given {
            Some(size) if size < chosen => mend,
            _ => "bring the weights closer together; tables cannot be larger".to_owned(),
        };
        report.warn(&place, problem, mend);
    }
    size
}

/// Whether `number` is a prime.
pub(super) fn is_prime(number: u32) -> bool {
    let small = |divisor: &u32| u64::from(*divisor).pow(2) <= u64::from(number);
    2 <= number && !(2..).take_while(small).any(|divisor| number.is_multiple_of(divisor))
}

/// The size that keeps the shares even, or the largest there is.
fn chosen(weights: &[u32]) -> u32 {
    let member = |weight: &u32| Member { identity: 0, weight: *weight };
    table_size(&weights.iter().map(member).collect::<Vec<_>>()).slot_count
}

/// Slots that the lightest backend gets, by its share.
fn lightest_slots(weights: &[u32], size: u32) -> u64 {
    let total: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
    let lightest = weights.iter().copied().min().unwrap_or(1);
    u64::from(size) * u64::from(lightest) / total.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_there_is_is_a_prime() {
        assert!(TABLE_SIZES.into_iter().all(is_prime));
        assert!(!is_prime(0) && !is_prime(1) && is_prime(2) && !is_prime(4) && !is_prime(65_536));
    }

    #[test]
    fn chosen_size_has_a_hundred_slots_for_the_lightest() {
        assert_eq!(chosen(&[1]), 1021);
        assert_eq!(chosen(&[1; 10]), 1021);
        assert_eq!(chosen(&[1; 11]), 2039);
        assert_eq!(chosen(&[1, 99]), 16_381);
        assert_eq!(chosen(&vec![1; 65_536]), 8_388_593);
    }

    #[test]
    fn lightest_backend_gets_its_share_of_the_slots() {
        assert_eq!(lightest_slots(&[1, 3], 1021), 255);
        assert_eq!(lightest_slots(&[5], 7), 7);
    }
}
