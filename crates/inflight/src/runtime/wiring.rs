//! From a fleet's settings to what each part takes; nothing is decided or checked here.

use inflight_core::admission::{
    AdmissionConfig, AdmissionScope, GateConfig, ModelConfig, QueueBounds, When,
};
use inflight_core::scaling::{
    Bounds, ConcurrencyConfig, DownWindow, Measure, OccupancyConfig, Policy, ScalingConfig,
    StaffingConfig, StepLimit,
};

use crate::config::{
    self, CloseWhen, FleetConfig, PolicySettings, StaffingProfile, StepSettings, Target,
};
use crate::gateway::{
    GatewayConfig, Limits, ModelRoute, SessionBy, Timeouts, UpstreamProtocol,
};
use crate::targets::process::{ProcessConfig, ProcessSettings, ReadyProbe};
