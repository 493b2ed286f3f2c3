//! What a file has that concerns us: clusters, and connection managers with their routes and filters.

use super::spot::Spot;

/// The parts of a file.
pub(super) struct File<'a> {
    /// What has `admin` and `static_resources`.
    pub(super) root: Spot<'a>,
    pub(super) clusters: Vec<Spot<'a>>,
    pub(super) listeners: Vec<Spot<'a>>,
    pub(super) managers: Vec<Manager<'a>>,
}

/// A connection manager: what is done with the requests of a listener.
pub(super) struct Manager<'a> {
    pub(super) spot: Spot<'a>,
    pub(super) filters: Vec<Filter<'a>>,
    pub(super) routes: Vec<Route<'a>>,
}

/// A filter, in the order in which requests pass them.
pub(super) struct Filter<'a> {
    pub(super) name: &'a str,
    pub(super) spot: Spot<'a>,
    pub(super) config: Spot<'a>,
}

/// A route, with what is around it.
pub(super) struct Route<'a> {
    pub(super) spot: Spot<'a>,
    pub(super) host: Spot<'a>,
    all: Spot<'a>,
}

impl<'a> File<'a> {
    /// Finds the parts, in a configuration or in a dump.
    pub(super) fn read(root: &Spot<'a>) -> Self {
        let mut found = Self {
            root: root.clone(),
            clusters: Vec::new(),
            listeners: Vec::new(),
            managers: Vec::new(),
        };
        for part in root.get("configs").items() {
            found.add_dumped(&part);
        }
        found.add_resources(&found.root.get("static_resources"));
        found.managers = found.listeners.iter().flat_map(managers).collect();
        found
    }

    fn add_resources(&mut self, resources: &Spot<'a>) {
        self.clusters.extend(resources.get("clusters").items());
        self.listeners.extend(resources.get("listeners").items());
    }

    /// Adds a part of a dump: what Envoy was started with, and what it was given since.
    fn add_dumped(&mut self, part: &Spot<'a>) {
        if part.get("bootstrap").is_there() {
            self.root = part.get("bootstrap");
        }
        for list in ["dynamic_active_clusters", "dynamic_warming_clusters"] {
            let given = part.get(list).items();
            self.clusters
                .extend(given.iter().map(|one| one.get("cluster")));
        }
        for listener in part.get("dynamic_listeners").items() {
            self.listeners
                .push(listener.get("active_state").get("listener"));
        }
    }

    pub(super) fn cluster(&self, name: &str) -> Option<Spot<'a>> {
        let mut named = self.clusters.iter().filter(|one| one.name() == Some(name));
        named.next().cloned()
    }

    /// Returns the names of the clusters that requests are sent to where somebody judges them.
    pub(super) fn routed_clusters(&self) -> Vec<String> {
        let judged = (self.managers.iter())
            .filter(|manager| manager.filters.iter().any(|filter| filter.judges()));
        let mut names: Vec<String> = judged
            .flat_map(|manager| &manager.routes)
            .flat_map(Route::clusters)
            .map(str::to_owned)
            .collect();
        names.sort();
        names.dedup();
        names
    }

    /// Returns the managers with routes to a cluster.
    pub(super) fn managers_of(&self, cluster: &str) -> impl Iterator<Item = &Manager<'a>> {
        let leads = move |route: &Route<'_>| route.clusters().contains(&cluster);
        (self.managers.iter()).filter(move |manager| manager.routes.iter().any(leads))
    }
}

/// Returns the port of a listener, or of an endpoint.
pub(super) fn port_of(of: &Spot<'_>) -> Option<u16> {
    let socket = of.get("address").get("socket_address");
    socket.get("port_value").port()
}

/// Returns the ports of a cluster's endpoints, as far as the file has them.
pub(super) fn endpoint_ports(cluster: &Spot<'_>) -> Vec<u16> {
    let groups = cluster.get("load_assignment").get("endpoints").items();
    let endpoints = groups
        .iter()
        .flat_map(|group| group.get("lb_endpoints").items());
    endpoints
        .filter_map(|one| port_of(&one.get("endpoint")))
        .collect()
}

fn managers<'a>(listener: &Spot<'a>) -> Vec<Manager<'a>> {
    let mut chains = listener.get("filter_chains").items();
    chains.push(listener.get("default_filter_chain"));
    let filters = chains.iter().flat_map(|chain| chain.get("filters").items());
    let configs = filters.map(|filter| filter.get("typed_config"));
    configs
        .filter(|config| config.kind() == "HttpConnectionManager")
        .map(|spot| Manager {
            filters: filters_of(&spot),
            routes: routes_of(&spot.get("route_config")),
            spot,
        })
        .collect()
}

fn filters_of<'a>(manager: &Spot<'a>) -> Vec<Filter<'a>> {
    let filters = manager.get("http_filters").items().into_iter();
    let filters = filters.map(|spot| Filter {
        name: spot.name().unwrap_or_default(),
        config: spot.get("typed_config"),
        spot,
    });
    filters.collect()
}

fn routes_of<'a>(all: &Spot<'a>) -> Vec<Route<'a>> {
    let mut routes = Vec::new();
    for host in all.get("virtual_hosts").items() {
        for spot in host.get("routes").items() {
            routes.push(Route {
                spot,
                host: host.clone(),
                all: all.clone(),
            });
        }
    }
    routes
}

impl Filter<'_> {
    pub(super) fn is_ext_authz(&self) -> bool {
        self.config.kind() == "ExtAuthz"
    }

    pub(super) fn is_lua(&self) -> bool {
        self.config.kind() == "Lua"
    }

    fn judges(&self) -> bool {
        self.is_ext_authz() || self.is_lua()
    }

    /// Tells whether the calls of a route pass it.
    pub(super) fn is_on(&self, route: &Route<'_>) -> bool {
        for around in [&route.spot, &route.host, &route.all] {
            let mut own = around.get("typed_per_filter_config").entries();
            if let Some((_, own)) = own.find(|(name, _)| *name == self.name) {
                let is_off = own.get("disabled").is_true();
                return !is_off && !own.get("config").get("disabled").is_true();
            }
        }
        !self.spot.get("disabled").is_true()
    }
}

impl<'a> Route<'a> {
    /// Returns the clusters that it leads to.
    pub(super) fn clusters(&self) -> Vec<&'a str> {
        let route = self.spot.get("route");
        let weighted = route.get("weighted_clusters").get("clusters").items();
        let weighted = weighted.into_iter().map(|one| one.get("name"));
        let all = std::iter::once(route.get("cluster")).chain(weighted);
        all.filter_map(|one| one.text()).collect()
    }

    /// Tells whether it takes a path, by what can be told without evaluating a pattern.
    pub(super) fn takes(&self, path: &str) -> bool {
        let matched = self.spot.get("match");
        matched
            .get("path")
            .text()
            .is_some_and(|exact| exact == path)
            || ["prefix", "path_separated_prefix"].iter().any(|key| {
                let prefix = matched.get(key).text();
                prefix.is_some_and(|prefix| path.starts_with(prefix))
            })
    }
}
