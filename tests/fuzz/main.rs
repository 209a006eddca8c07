//! The bodies of the fuzz targets on bytes from a seed: what `cargo fuzz` does by the million and
//! guided by coverage (see CONTRIBUTING), `cargo test` does by the thousand.

mod bodies;

/// A generator of bytes that are the same for the same seed.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u8 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 56) as u8
    }

    /// Bytes of which many are small: what chooses among few has more chances so.
    fn bytes(&mut self) -> Vec<u8> {
        let length = usize::from(self.next()) * (1 + usize::from(self.next()) / 32);
        (0..length).map(|_| if self.next() < 96 { self.next() } else { self.next() % 16 }).collect()
    }
}

/// PSCHED_FUZZ_SEED names the first of the seeds; 0 if it is not set.
fn try_many(body: fn(&[u8])) {
    let given = std::env::var("PSCHED_FUZZ_SEED").ok();
    let first: u64 = given.map_or(0, |text| text.parse().expect("PSCHED_FUZZ_SEED is a number"));
    for seed in first..first + 3_000 {
        let data = Dice(seed).bytes();
        if let Err(panic) = std::panic::catch_unwind(|| body(&data)) {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn pmi() {
    try_many(bodies::pmi::fuzz);
}

#[test]
fn frames() {
    try_many(bodies::frames::fuzz);
}

#[test]
fn shepherd() {
    try_many(bodies::shepherd::fuzz);
}

#[test]
fn agent() {
    try_many(bodies::agent::fuzz);
}

#[test]
fn postings() {
    try_many(bodies::postings::fuzz);
}

#[test]
fn manifest() {
    try_many(bodies::manifest::fuzz);
}
