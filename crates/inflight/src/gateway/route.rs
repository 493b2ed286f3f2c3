//! What a request's path and headers say: whether it counts, which model it is for, whether it
//! begins a session.

use std::cmp::Reverse;

use http::HeaderMap;
use inflight_core::ModelIndex;

use super::config::{GatewayConfig, ModelRoute};

/// The routing part of a gateway's settings, ready for look-ups.
#[derive(Debug)]
pub(super) struct Routes {
    ignored: Vec<String>,
    first_calls: Vec<String>,
    /// Longest prefix first, then the most headers; prefixes without a slash at the end.
    models: Vec<ModelRoute>,
    /// Takes what matches none.
    first: ModelIndex,
}

/// What a request's head says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// Forwarded without being counted or held.
    Ignored,
    /// Counted, for a model.
    Counted {
        /// The model.
        model: ModelIndex,
        /// Whether it begins a session.
        first_call: bool,
    },
}

impl Routes {
    pub(super) fn new(config: &GatewayConfig) -> Self {
        let mut models: Vec<ModelRoute> = config
            .models
            .iter()
            .map(|route| ModelRoute {
                prefix: route.prefix.trim_end_matches('/').to_owned(),
                ..route.clone()
            })
            .collect();
        models.sort_by_key(|route| Reverse((route.prefix.len(), route.headers.len())));
        Self {
            ignored: config.ignore_paths.clone(),
            first_calls: config.first_calls.clone(),
            models,
            first: (config.models.first()).map_or(ModelIndex::default(), |route| route.model),
        }
    }

    /// Looks a request up. Ignored paths are compared as a whole, so that nothing below or around
    /// them slips past the count.
    pub(super) fn of(&self, path: &str, headers: &HeaderMap) -> Route {
        if self.ignored.iter().any(|ignored| ignored == path) {
            return Route::Ignored;
        }
        let matching = self
            .models
            .iter()
            .find(|route| is_below(path, &route.prefix) && carries(headers, route));
        Route::Counted {
            model: matching.map_or(self.first, |route| route.model),
            first_call: self.first_calls.iter().any(|first| first == path),
        }
    }
}

fn is_below(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn carries(headers: &HeaderMap, route: &ModelRoute) -> bool {
    let has = |name, value| headers.get_all(name).iter().any(|found| found == value);
    route.headers.iter().all(|(name, value)| has(name, value))
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn headers(text: &[(&'static str, &'static str)]) -> Vec<(HeaderName, HeaderValue)> {
        let header = |&(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        };
        text.iter().map(header).collect()
    }

    fn of(routes: &Routes, path: &str) -> Route {
        routes.of(path, &HeaderMap::new())
    }

    #[test]
    fn the_longest_path_wins_then_the_most_headers_then_the_first() {
        let mut config = GatewayConfig::new(([127, 0, 0, 1], 0).into());
        let route = |(model, (prefix, text)): (usize, (&str, &[_]))| ModelRoute {
            prefix: prefix.to_owned(),
            headers: headers(text),
            model: ModelIndex(model),
        };
        let all: [(&str, &[(&str, &str)]); 5] = [
            ("/", &[]),
            ("/", &[("x-model", "a")]),
            ("/", &[("x-tier", "gold")]),
            ("/", &[("x-model", "a"), ("x-tier", "gold")]),
            ("/v2", &[]),
        ];
        config.models = all.into_iter().enumerate().map(route).collect();
        let routes = Routes::new(&config);
        let model =
            |path: &str, text: &[_]| match routes.of(path, &headers(text).into_iter().collect()) {
                Route::Counted { model, .. } => model.0,
                Route::Ignored => usize::MAX,
            };
        assert_eq!(model("/x", &[]), 0);
        assert_eq!(model("/x", &[("x-model", "a")]), 1);
        assert_eq!(model("/x", &[("x-model", "ab")]), 0);
        assert_eq!(model("/x", &[("x-tier", "gold")]), 2);
        assert_eq!(model("/x", &[("x-tier", "gold"), ("x-model", "a")]), 3);
        assert_eq!(model("/v2/x", &[("x-tier", "gold"), ("x-model", "a")]), 4);
    }

    #[test]
    fn a_header_that_is_there_twice_fits_by_either_value() {
        let mut config = GatewayConfig::new(([127, 0, 0, 1], 0).into());
        config.models = vec![
            ModelRoute {
                prefix: "/".into(),
                headers: Vec::new(),
                model: ModelIndex(0),
            },
            ModelRoute {
                prefix: "/".into(),
                headers: headers(&[("x-model", "b")]),
                model: ModelIndex(1),
            },
        ];
        let mut sent = HeaderMap::new();
        for (name, value) in headers(&[("x-model", "a"), ("x-model", "b")]) {
            sent.append(name, value);
        }
        assert_eq!(Routes::new(&config).of("/", &sent), counted(1));
    }

    fn routes() -> Routes {
        let mut config = GatewayConfig::new(([127, 0, 0, 1], 0).into());
        config.ignore_paths = vec!["/healthz".into()];
        config.first_calls = vec!["/begin".into()];
        config.models = vec![
            ModelRoute {
                prefix: "/first".into(),
                headers: Vec::new(),
                model: ModelIndex(0),
            },
            ModelRoute {
                prefix: "/v2".into(),
                headers: Vec::new(),
                model: ModelIndex(1),
            },
            ModelRoute {
                prefix: "/v2/models/a/".into(),
                headers: Vec::new(),
                model: ModelIndex(2),
            },
        ];
        Routes::new(&config)
    }

    #[test]
    fn what_matches_no_model_belongs_to_the_first_of_them_whatever_its_row() {
        let mut config = GatewayConfig::new(([127, 0, 0, 1], 0).into());
        config.models = vec![ModelRoute {
            prefix: "/a".into(),
            headers: Vec::new(),
            model: ModelIndex(3),
        }];
        assert_eq!(Routes::new(&config).of("/b", &HeaderMap::new()), counted(3));
    }

    fn counted(model: usize) -> Route {
        Route::Counted {
            model: ModelIndex(model),
            first_call: false,
        }
    }

    #[test]
    fn the_longest_prefix_of_whole_segments_wins() {
        let routes = routes();
        assert_eq!(of(&routes, "/v2/models/a/infer"), counted(2));
        assert_eq!(of(&routes, "/v2/models/a"), counted(2));
        assert_eq!(of(&routes, "/v2/models/ab"), counted(1));
        assert_eq!(of(&routes, "/v20"), counted(0));
    }

    #[test]
    fn ignored_paths_and_first_calls_are_compared_as_a_whole() {
        let routes = routes();
        assert_eq!(of(&routes, "/healthz"), Route::Ignored);
        assert_eq!(of(&routes, "/healthz/../v20"), counted(0));
        assert_eq!(
            of(&routes, "/begin"),
            Route::Counted {
                model: ModelIndex(0),
                first_call: true
            }
        );
        assert_eq!(of(&routes, "/begin/"), counted(0));
    }
}
