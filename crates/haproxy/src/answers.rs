//! What HAProxy says, read.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use crate::seen::Totals;

/// A proxy and a server of it.
pub(crate) type Key = (String, String);

/// A server, as the current worker has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// What it is to do.
    pub admin: Admin,
    /// Whether its check passes.
    pub up: bool,
    /// What the last check found, in words.
    pub check: String,
}

/// What a server is to do, as a worker was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admin {
    /// To serve.
    Ready,
    /// To finish what it has.
    Drain,
    /// Nothing; it is not even checked.
    Maint,
}

/// The processes of an HAProxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Processes {
    pub(crate) master: u32,
    pub(crate) version: String,
    /// The worker that takes connections.
    pub(crate) current: Option<u32>,
    /// Those that finish what they have, the oldest first.
    pub(crate) old: Vec<u32>,
    /// Reloads that came to nothing since the last that did not.
    pub(crate) failed: u32,
    /// All reloads.
    pub(crate) reloads: u32,
}

/// Reads `show proc`.
pub(crate) fn processes(answer: &str) -> Option<Processes> {
    let (mut found, mut old): (Option<Processes>, bool) = (None, false);
    // By how many reloads they have seen.
    let mut ages: Vec<(u32, u32)> = Vec::new();
    for line in answer.lines() {
        if line.starts_with('#') {
            old = line.starts_with("# old");
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let (Some(Ok(pid)), Some(&kind)) = (words.first().map(|word| word.parse::<u32>()), words.get(1))
        else {
            continue;
        };
        match (kind, &mut found) {
            ("master", _) => {
                let number =
                    |word: Option<&&str>| word.and_then(|word| word.trim_end_matches(']').parse().ok());
                found = Some(Processes {
                    master: pid,
                    version: (*words.last()?).to_owned(),
                    current: None,
                    old: Vec::new(),
                    failed: number(words.get(4)).unwrap_or_default(),
                    reloads: number(words.get(2)).unwrap_or_default(),
                });
            }
            ("worker", Some(_)) if old => {
                let reloads = words.get(2).and_then(|word| word.parse().ok()).unwrap_or_default();
                ages.push((reloads, pid));
            }
            ("worker", Some(processes)) => processes.current = Some(pid),
            _ => {}
        }
    }
    ages.sort_by_key(|(reloads, _)| std::cmp::Reverse(*reloads));
    let mut found = found?;
    found.old = ages.into_iter().map(|(_, pid)| pid).collect();
    Some(found)
}

/// What a worker counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// By proxy.
    pub(crate) frontends: BTreeMap<String, Totals>,
    /// By server.
    pub(crate) servers: BTreeMap<Key, ServerCounts>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerCounts {
    pub(crate) sessions: u64,
    pub(crate) totals: Totals,
    pub(crate) check: String,
}

/// Reads `show stat`.
pub(crate) fn counts(answer: &str) -> Option<Counts> {
    let mut lines = answer.lines();
    let head = fields(lines.find(|line| line.starts_with("# "))?.get(2..)?);
    let column = |name: &str| head.iter().position(|field| field == name);
    let (proxy, server, kind) = (column("pxname")?, column("svname")?, column("type")?);
    let (sessions, connections) = (column("scur")?, column("stot")?);
    let (received, sent, denied) = (column("bin")?, column("bout")?, column("dcon")?);
    let (check, code, said) = (column("check_desc")?, column("check_code")?, column("last_chk")?);
    let status = column("check_status")?;
    let mut counts = Counts::default();
    for line in lines {
        let fields = fields(line);
        let text = |column: usize| fields.get(column).map(AsRef::as_ref).unwrap_or_default();
        let number = |column: usize| text(column).parse::<u64>().unwrap_or_default();
        let totals = Totals {
            connections: number(connections),
            bytes_received: number(received),
            bytes_sent: number(sent),
            denied: number(denied),
        };
        match text(kind) {
            "0" => {
                counts.frontends.insert(text(proxy).to_owned(), totals);
            }
            "2" => {
                let words = match text(status).trim_start_matches("* ") {
                    "" | "INI" => "not checked yet".to_owned(),
                    _ => [text(check), text(code), bracketed(text(said)).as_str()]
                        .into_iter()
                        .filter(|word| !word.is_empty())
                        .collect::<Vec<_>>()
                        .join(" "),
                };
                let key = (text(proxy).to_owned(), text(server).to_owned());
                let one = ServerCounts { sessions: number(sessions), totals, check: words };
                counts.servers.insert(key, one);
            }
            _ => {}
        }
    }
    Some(counts)
}

fn bracketed(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("({text})") }
}

/// The fields of a line, of which some are in quotes. Few lines have any, and there are thousands of them.
fn fields(line: &str) -> Vec<Cow<'_, str>> {
    if !line.contains('"') {
        return line.split(',').map(Cow::Borrowed).collect();
    }
    let (mut all, mut field, mut within) = (Vec::new(), String::new(), false);
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' if within && characters.peek() == Some(&'"') => {
                characters.next();
                field.push('"');
            }
            '"' => within = !within,
            ',' if !within => all.push(Cow::Owned(std::mem::take(&mut field))),
            other => field.push(other),
        }
    }
    all.push(Cow::Owned(field));
    all
}

/// HAProxy's bits of who said that a server is not to serve.
const MAINT: u32 = 0x01 | 0x02 | 0x20;
const DRAIN: u32 = 0x08 | 0x10;
/// The bit of a check that is looked at.
const CHECKED: u32 = 0x04;

/// Reads `show servers state`: what servers are to do, and whether they are up.
pub(crate) fn servers(answer: &str) -> BTreeMap<Key, (Admin, bool)> {
    let mut all = BTreeMap::new();
    for line in answer.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split(' ').collect();
        let [_, backend, _, server, _, state, admin, _, _, _, _, _, _, check, ..] = words[..] else {
            continue;
        };
        let number = |word: &str| word.parse::<u32>().unwrap_or_default();
        let admin = match number(admin) {
            // Just added: it is not checked before it is told to be.
            _ if number(check) & CHECKED == 0 => Admin::Maint,
            bits if bits & MAINT != 0 => Admin::Maint,
            bits if bits & DRAIN != 0 => Admin::Drain,
            _ => Admin::Ready,
        };
        all.insert((backend.to_owned(), server.to_owned()), (admin, number(state) == 2));
    }
    all
}

/// Reads the number of a proxy from `show servers state` of it.
pub(crate) fn proxy_number(answer: &str) -> Option<u32> {
    let mut lines = answer.lines().filter(|line| !line.starts_with('#'));
    lines.find_map(|line| line.split_once(' ')?.0.parse().ok())
}

/// Reads `show acl` of a file: a place in memory and a range on each line.
pub(crate) fn ranges(answer: &str) -> BTreeSet<String> {
    let pairs = answer.lines().filter_map(|line| line.split_once(' '));
    pairs.filter(|(place, _)| place.starts_with("0x")).map(|(_, range)| range.trim().to_owned()).collect()
}

/// Reads `show sess`: the identifiers of the connections of these servers.
pub(crate) fn sessions<'a>(answer: &'a str, servers: &BTreeSet<Key>) -> Vec<&'a str> {
    let is_of_it = |line: &str| {
        let word = |key: &str| line.split(' ').find_map(|word| word.strip_prefix(key));
        word("be=")
            .zip(word("srv="))
            .is_some_and(|(proxy, name)| servers.contains(&(proxy.to_owned(), name.to_owned())))
    };
    let lines = answer.lines().filter(|line| is_of_it(line));
    lines.filter_map(|line| line.split(':').next()).filter(|id| id.starts_with("0x")).collect()
}

/// Reads the number of the structure from `show info`.
pub(crate) fn generation(answer: &str) -> Option<u64> {
    answer.lines().find_map(|line| line.strip_prefix("description: ")?.trim().parse().ok())
}

/// Reads the number of the process from `show info`.
pub(crate) fn pid(answer: &str) -> Option<u32> {
    answer.lines().find_map(|line| line.strip_prefix("Pid: ")?.trim().parse().ok())
}

/// The version that a program tells of itself.
pub(crate) fn version(answer: &str) -> Option<(u32, u32)> {
    let word = answer.split_whitespace().skip_while(|word| *word != "version").nth(1)?;
    let mut numbers = word.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_read() {
        let answer = "#<PID>          <type>          <reloads>       <uptime>        <version>      \n\
            11567           master          3 [failed: 2]   0d00h02m11s     2.6.12-1+deb12u4\n\
            # workers\n18537           worker          2               0d00h01m02s     2.6.12-1+deb12u4\n\
            # old workers\n17000           worker          1               0d00h01m08s     2.6.12-1+deb12u4\n\
            11612           worker          3               0d00h01m16s     2.6.12-1+deb12u4\n\
            16000           worker          2               0d00h01m10s     2.6.12-1+deb12u4\n\
            # programs\n\n";
        let expected = Processes {
            master: 11567,
            version: "2.6.12-1+deb12u4".to_owned(),
            current: Some(18537),
            old: vec![11612, 16000, 17000],
            failed: 2,
            reloads: 3,
        };
        assert_eq!(processes(answer), Some(expected));
        for nonsense in ["", "x", "12", "Unknown command\n"] {
            assert_eq!(processes(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn counts_are_read_by_the_names_of_their_columns() {
        let answer = "# pxname,svname,scur,stot,bin,bout,type,check_status,check_code,last_chk,check_desc,dcon,\n\
            shop:web:80,FRONTEND,2,7,100,200,0,,,,,3,\n\
            shop:web:80,a,1,5,60,120,2,L7STS,500,\"Internal, \"\"really\"\"\",Layer7 wrong status,,\n\
            shop:web:80,b,1,2,40,80,2,* L4OK,,,Layer4 check passed,,\n\
            shop:web:80,c,0,0,0,0,2,INI,,,Initializing,,\n\n";
        let counts = counts(answer).unwrap();
        assert_eq!(counts.frontends["shop:web:80"].denied, 3);
        let server = |name: &str| &counts.servers[&("shop:web:80".to_owned(), name.to_owned())];
        assert_eq!(server("a").check, "Layer7 wrong status 500 (Internal, \"really\")");
        assert_eq!((server("a").sessions, server("a").totals.connections), (1, 5));
        assert_eq!(server("b").check, "Layer4 check passed");
        assert_eq!(server("c").check, "not checked yet");
    }

    #[test]
    fn states_are_read() {
        let answer = "1\n# be_id be_name srv_id srv_name …\n\
            3 p 1 up 127.0.0.1 2 0 1 1 4 6 3 5 6 0 0 0 - 19001 - 0 0 - - 0\n\
            3 p 2 aside 127.0.0.1 0 5 1 1 7 8 2 0 14 0 0 0 - 19002 - 0 0 - - 0\n\
            3 p 3 back 127.0.0.1 0 4 1 1 7 8 2 0 6 0 0 0 - 19002 - 0 0 - - 0\n\
            3 p 4 drains 127.0.0.1 2 8 1 1 50 6 3 5 6 0 0 0 - 19003 - 0 0 - - 0\n\
            3 p 5 added 127.0.0.1 0 1 1 1 0 1 0 0 2 0 0 0 - 19003 - 0 0 - - 0\n\n";
        assert_eq!(proxy_number(answer), Some(3));
        assert_eq!(proxy_number("1\n# be_id be_name …\n\n"), None);
        let found: Vec<_> = servers(answer).into_iter().map(|((_, name), state)| (name, state)).collect();
        let expected = [
            ("added", Admin::Maint, false),
            ("aside", Admin::Maint, false),
            ("back", Admin::Ready, false),
            ("drains", Admin::Drain, true),
            ("up", Admin::Ready, true),
        ];
        assert_eq!(found, expected.map(|(name, admin, up)| (name.to_owned(), (admin, up))));
    }

    #[test]
    fn connections_are_told_by_their_server() {
        let answer = "0x55d320069f70: proto=tcpv4 src=127.0.0.1:55676 fe=a:b:80 be=a:b:80 srv=one ts=00 epoch=0\n\
            0x55d320069f71: proto=tcpv4 src=127.0.0.1:55677 fe=a:b:80 be=a:b:80 srv=one:1 ts=00 epoch=0\n\
            0x55d32019a990: proto=sockpair src=unix:2 fe=GLOBAL be=<NONE> srv=<none> ts=00 epoch=0\n\n";
        let of = |servers: &[&str]| {
            let servers = servers.iter().map(|name| ("a:b:80".to_owned(), (*name).to_owned()));
            sessions(answer, &servers.collect())
        };
        assert_eq!(of(&["one"]), ["0x55d320069f70"]);
        assert_eq!(of(&["two"]), [""; 0]);
        assert_eq!(of(&["one", "two"]), ["0x55d320069f70"]);
    }

    #[test]
    fn small_things_are_read() {
        assert_eq!(
            ranges("0x5581 10.0.0.0/8\n0x5582 fd00::/8\n\n").into_iter().collect::<Vec<_>>(),
            ["10.0.0.0/8", "fd00::/8"]
        );
        let info = "Name: HAProxy\nPid: 42\ndescription: 17\n";
        assert_eq!((generation(info), pid(info)), (Some(17), Some(42)));
        assert_eq!(
            version("HAProxy version 2.6.12-1+deb12u4 2026/10/17 - https://haproxy.org/"),
            Some((2, 6))
        );
        assert_eq!(version("HA-Proxy version 1.8.4-de425f6 2018/02/26"), Some((1, 8)));
    }
}
