//! The kernel object: entry points and maps.
fn main() {}
