use super::reader::Reader;

/// Who has to show a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientTls {
    /// Whether those who show none are sent away.
    pub is_required: bool,
    /// The `ConfigMap` with the authorities that certificates have to come from.
    pub authorities: String,
    /// What the subject of a certificate has to look like; anything, if there are none.
    pub subject_patterns: Vec<String>,
}

/// Which protocols and ciphers are spoken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TlsProfile {
    /// For very old clients.
    Old,
    /// For nearly all clients.
    #[default]
    Intermediate,
    /// TLS 1.3 alone.
    Modern,
    /// As written.
    Custom {
        /// The ciphers, by the names that OpenSSL has for them.
        ciphers: Vec<String>,
        /// The oldest version.
        oldest: TlsVersion,
        /// The groups that keys are agreed on in; the router's own, if there are none.
        groups: Vec<String>,
    },
}

/// The versions of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "they are what they are called")]
pub enum TlsVersion {
    V10,
    V11,
    V12,
    V13,
}

/// The ciphers of TLS 1.3. They are chosen apart from those of the versions before.
const TLS13: [&str; 5] = [
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_AES_128_CCM_SHA256",
    "TLS_AES_128_CCM_8_SHA256",
];

/// Whether a cipher is one of TLS 1.3.
pub fn is_tls13(cipher: &str) -> bool {
    TLS13.contains(&cipher)
}

pub(super) fn client(place: &Reader<'_>) -> Option<ClientTls> {
    if !place.has_keys(&["clientCertificatePolicy", "clientCA", "allowedSubjectPatterns"]) {
        return None;
    }
    let policy = place.at("clientCertificatePolicy").word(&["Required", "Optional"]);
    place.at("clientCA").has_keys(&["name"]);
    let patterns = place.at("allowedSubjectPatterns").entries(1000);
    let subject_patterns = patterns.iter().filter_map(pattern).collect();
    Some(ClientTls {
        is_required: policy? == "Required",
        authorities: place.at("clientCA").at("name").name()?,
        subject_patterns,
    })
}

fn pattern(place: &Reader<'_>) -> Option<String> {
    let is_pattern = |text: &str| regex_syntax::parse(text).is_ok();
    place.text_that(is_pattern, "is not a regular expression")
}

pub(super) fn profile(place: &Reader<'_>) -> Option<TlsProfile> {
    if !place.has_keys(&["type", "old", "intermediate", "modern", "custom"]) {
        return None;
    }
    Some(match place.at("type").word(&["Old", "Intermediate", "Modern", "Custom"])? {
        "Old" => TlsProfile::Old,
        "Modern" => TlsProfile::Modern,
        "Custom" => custom(&place.at("custom"))?,
        _ => TlsProfile::Intermediate,
    })
}

fn custom(place: &Reader<'_>) -> Option<TlsProfile> {
    place.has_keys(&["ciphers", "minTLSVersion", "groups"]);
    let is_cipher = |text: &str| {
        let name = text.strip_prefix('!').unwrap_or(text);
        let fits = |letter: char| letter.is_ascii_alphanumeric() || "_+-".contains(letter);
        name.len() > 1
            && name.starts_with(|first: char| first.is_ascii_alphabetic())
            && name.chars().all(fits)
    };
    let list = place.at("ciphers");
    let each = list.entries(1000);
    let ciphers: Vec<String> =
        each.iter().filter_map(|entry| entry.text_that(is_cipher, "is not the name of a cipher")).collect();
    let wrong = |what: &str| {
        list.wrong(format!("{}: {what}", list.place()));
        None
    };
    if ciphers.is_empty() {
        return wrong("there are none; name some, or choose another type of profile");
    }
    let version = place.at("minTLSVersion");
    if version.text().is_none() {
        version.wrong(format!("{}: it is missing; it is VersionTLS12, for example", version.place()));
    }
    let oldest = match version.word(&["VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"])? {
        "VersionTLS10" => TlsVersion::V10,
        "VersionTLS11" => TlsVersion::V11,
        "VersionTLS12" => TlsVersion::V12,
        _ => TlsVersion::V13,
    };
    let new = ciphers.iter().filter(|cipher| is_tls13(cipher)).count();
    if oldest < TlsVersion::V13 && new == ciphers.len() {
        return wrong(
            "all are of TLS 1.3, and minTLSVersion allows older versions; add some of these, or set VersionTLS13",
        );
    }
    if oldest == TlsVersion::V13 && new == 0 {
        return wrong("none is of TLS 1.3, and minTLSVersion allows no other; add some, or set VersionTLS12");
    }
    let groups = place.at("groups").entries(100);
    let groups = groups.iter().filter_map(|entry| entry.text_that(is_cipher, "is not the name of a group"));
    Some(TlsProfile::Custom { ciphers, oldest, groups: groups.collect() })
}
