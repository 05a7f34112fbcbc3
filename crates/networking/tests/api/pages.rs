//! Lists in pages, and the links from one to the next.

use serde_json::{Value, json};

use crate::client::shared;

/// What a page shows, and where its links go.
fn page(body: &Value) -> (Vec<&str>, Option<&str>, Option<&str>) {
    let link = |rel: &str| {
        let links = body["networks_links"].as_array().unwrap();
        let link = links.iter().find(|link| link["rel"] == rel)?;
        Some(link["href"].as_str().unwrap().split_once("/v2.0/").unwrap().1)
    };
    let names = body["networks"].as_array().unwrap().iter().map(|network| network["name"].as_str().unwrap());
    (names.collect(), link("next"), link("previous"))
}

#[test]
fn clients_walk_to_the_end_and_back() {
    let blue = shared().user("member");
    for name in ["a", "b", "c", "d"] {
        blue.make("networks", "network", json!({ "name": name }));
    }
    let mut body = blue.get("networks?limit=2&sort_key=name&sort_dir=asc");
    for expected in [["a", "b"], ["c", "d"]] {
        let (names, next, previous) = page(&body);
        assert_eq!((names.as_slice(), previous.is_some()), (expected.as_slice(), true));
        body = blue.get(next.unwrap());
    }
    for expected in [&[][..], &["c", "d"], &["a", "b"]] {
        let (names, next, previous) = page(&body);
        assert_eq!((names.as_slice(), next.is_some()), (expected, !expected.is_empty()));
        body = blue.get(previous.unwrap());
    }
    let (names, next, previous) = page(&body);
    assert_eq!((names.len(), previous), (0, None), "nothing comes before the first");
    assert_eq!(page(&blue.get(next.unwrap())).0, ["a", "b"]);

    let body = blue.get("networks?limit=9");
    let (names, next, previous) = page(&body);
    assert_eq!((names.len(), next, previous.is_some()), (4, None, true));
    assert!(blue.get("networks").get("networks_links").is_none());
}
