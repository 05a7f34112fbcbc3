//! What holds the deletion of a Machine until it has left its load balancer.

use std::collections::BTreeMap;

/// The two annotations of a Machine that hold its deletion for a load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hooks {
    /// Before its node is drained.
    pub pre_drain: String,
    /// Before its machine ends.
    pub pre_terminate: String,
}

/// Who holds it, which is the value of both.
const HOLDER: &str = "portcullis";

/// The part of an annotation's key after its `/` is no longer than this.
const LONGEST: usize = 63;

/// The hooks of a load balancer.
pub fn hooks(load_balancer: &str) -> Hooks {
    let name = short(load_balancer);
    Hooks {
        pre_drain: format!("pre-drain.delete.hook.machine.cluster.x-k8s.io/{name}"),
        pre_terminate: format!("pre-terminate.delete.hook.machine.cluster.x-k8s.io/{name}"),
    }
}

impl Hooks {
    /// Both, as annotations.
    pub fn annotations(&self) -> BTreeMap<String, String> {
        [&self.pre_drain, &self.pre_terminate].map(|key| (key.clone(), HOLDER.to_owned())).into()
    }

    /// Whether an object has one of them.
    pub fn is_on(&self, annotations: Option<&BTreeMap<String, String>>) -> bool {
        annotations
            .is_some_and(|all| all.contains_key(&self.pre_drain) || all.contains_key(&self.pre_terminate))
    }
}

/// A long name is cut, and told apart from others that start like it by a number made from all of it.
fn short(name: &str) -> String {
    if name.len() <= LONGEST {
        return name.to_owned();
    }
    // FNV-1a: it is the same in every version of the program, which a hash of the standard library need not be.
    let number = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |number, byte| {
        (number ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let number = format!("{number:016x}");
    format!("{}-{number}", &name[..LONGEST - number.len() - 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_stay_different() {
        let long = |end: &str| format!("{}{end}", "a".repeat(70));
        let (one, other) = (hooks(&long("b")), hooks(&long("c")));
        assert_ne!(one, other);
        for key in [&one.pre_drain, &one.pre_terminate] {
            assert_eq!(key.rsplit_once('/').unwrap().1.len(), LONGEST);
        }
        assert_eq!(hooks("lb").pre_drain, "pre-drain.delete.hook.machine.cluster.x-k8s.io/lb");
        assert_eq!(hooks("lb").pre_terminate, "pre-terminate.delete.hook.machine.cluster.x-k8s.io/lb");
    }

    #[test]
    fn one_of_them_is_enough() {
        let hooks = hooks("lb");
        let mut both = hooks.annotations();
        assert!(hooks.is_on(Some(&both)));
        both.remove(&hooks.pre_drain);
        assert!(hooks.is_on(Some(&both)));
        both.clear();
        assert!(!hooks.is_on(Some(&both)) && !hooks.is_on(None));
    }
}
