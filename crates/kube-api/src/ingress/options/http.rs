use super::reader::Reader;

/// What routers do with headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers {
    /// What is done with headers that say who asked: `Append`, `Replace`, `IfNone` or `Never`.
    pub forwarded: Option<String>,
    /// A header by which a request can be found again, and what is in it.
    pub unique_id: Option<(String, Option<String>)>,
    /// Headers whose letters are written so.
    pub case_adjustments: Vec<String>,
    /// What is done with headers of requests.
    pub request: Vec<HeaderAction>,
    /// What is done with headers of responses.
    pub response: Vec<HeaderAction>,
}

/// What is done with a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderAction {
    /// Its name.
    pub name: String,
    /// What is in it from then on; it goes if there is nothing.
    pub value: Option<String>,
}

/// Headers that routers decide with, or that decide about others.
const UNTOUCHABLE: [&str; 5] = ["strict-transport-security", "proxy", "host", "cookie", "set-cookie"];

const MOST_ACTIONS: usize = 20;

pub(super) fn headers(place: &Reader<'_>) -> Headers {
    if !place.has_keys(&["forwardedHeaderPolicy", "uniqueId", "headerNameCaseAdjustments", "actions"]) {
        return Headers::default();
    }
    let unique = place.at("uniqueId");
    unique.has_keys(&["name", "format"]);
    let unique_id = unique.at("name").text_that(is_token, NO_HEADER);
    let actions = place.at("actions");
    actions.has_keys(&["request", "response"]);
    let adjusted = place.at("headerNameCaseAdjustments").entries(1000);
    Headers {
        forwarded: place
            .at("forwardedHeaderPolicy")
            .word(&["Append", "Replace", "IfNone", "Never"])
            .map(str::to_owned),
        unique_id: unique_id.map(|name| (name, unique.at("format").text().map(str::to_owned))),
        case_adjustments: adjusted.iter().filter_map(|name| name.text_that(is_token, NO_HEADER)).collect(),
        request: self::actions(&actions.at("request")),
        response: self::actions(&actions.at("response")),
    }
}

const NO_HEADER: &str = "is not the name of a header";

fn actions(place: &Reader<'_>) -> Vec<HeaderAction> {
    place.entries(MOST_ACTIONS).iter().filter_map(action).collect()
}

fn action(place: &Reader<'_>) -> Option<HeaderAction> {
    place.has_keys(&["name", "action"]);
    let (name, action) = (place.at("name"), place.at("action"));
    name.name()?;
    let found = name.text_that(is_token, NO_HEADER)?;
    if UNTOUCHABLE.contains(&found.to_ascii_lowercase().as_str()) {
        name.refuse("cannot be set or deleted so; routes have fields of their own for some of these");
        return None;
    }
    action.has_keys(&["type", "set"]);
    let type_ = action.at("type");
    if type_.text().is_none() {
        type_.wrong(format!("{}: it is missing; it is Set or Delete", type_.place()));
    }
    let value = match type_.word(&["Set", "Delete"])? {
        "Set" => Some(action.at("set").at("value").name()?),
        _ => None,
    };
    Some(HeaderAction { name: found, value })
}

/// The types of content that are compressed.
pub(super) fn compressed(place: &Reader<'_>) -> Vec<String> {
    place.has_keys(&["mimeTypes"]);
    let is_type =
        |text: &str| text.split_once('/').is_some_and(|(kind, rest)| is_token(kind) && !rest.is_empty());
    let each = place.at("mimeTypes").entries(1000);
    each.iter().filter_map(|entry| entry.text_that(is_type, "is not a type such as `text/html`")).collect()
}

/// Whether text can be the name of a header or a cookie (RFC 9110, token).
pub(super) fn is_token(text: &str) -> bool {
    let fits = |letter: u8| letter.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&letter);
    !text.is_empty() && text.len() <= 1024 && text.bytes().all(fits)
}
