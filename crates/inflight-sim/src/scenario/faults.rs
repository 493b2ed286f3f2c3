//! What goes wrong in a run, and when. *Units*: seconds.

/// Something that happens to replicas.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FleetFaultAt {
    /// When.
    pub at: f64,
    /// What.
    pub fault: FleetFault,
}

/// What may happen to replicas. Those with most to lose are hit: the longest ready first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FleetFault {
    /// Some end at once; what they execute fails, what waits in them goes elsewhere.
    Crash {
        /// How many.
        replicas: u32,
    },
    /// Some take no request for a time, but finish those they have.
    Unhealthy {
        /// How many.
        replicas: u32,
        /// How long.
        span: f64,
    },
    /// Some are slower for a time.
    Slow {
        /// How many.
        replicas: u32,
        /// How long.
        span: f64,
        /// Their share of their speed.
        factor: f64,
    },
    /// Replicas that are asked for within a time never become ready.
    NeverReady {
        /// How long.
        span: f64,
    },
}

/// Something that happens to readings for a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReadingFaultFrom {
    /// From when.
    pub from: f64,
    /// How long.
    pub span: f64,
    /// What.
    pub fault: ReadingFault,
}

/// What may happen to readings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ReadingFault {
    /// They come late, and say so by their age.
    Delay {
        /// How late.
        by: f64,
    },
    /// They do not come.
    Drop,
    /// They stay as they were, and say that they are fresh.
    Freeze,
    /// They are no numbers that could be.
    Corrupt,
}
