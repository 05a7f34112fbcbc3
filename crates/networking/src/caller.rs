/// Who asks, as its token says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    pub user: String,
    /// What the request is about if it does not say.
    pub project: String,
    pub project_name: String,
    /// All of them, the implied ones too.
    pub roles: Vec<String>,
}

impl Caller {
    fn has(&self, role: &str) -> bool {
        self.roles.iter().any(|known| known.eq_ignore_ascii_case(role))
    }

    /// May do everything, to everybody's objects.
    pub fn is_admin(&self) -> bool {
        self.has("admin")
    }

    /// May change its project's objects.
    pub fn is_member(&self) -> bool {
        self.is_admin() || self.has("member") || self.has("manager")
    }

    /// May look at how much its project may have, and has.
    pub fn is_manager(&self) -> bool {
        self.is_admin() || self.has("manager")
    }

    /// May look at its project's objects.
    pub fn is_reader(&self) -> bool {
        self.is_member() || self.has("reader")
    }

    /// Whether an object of that project is its own, or it stands above that.
    pub fn owns(&self, project: &str) -> bool {
        self.is_admin() || (!self.project.is_empty() && self.project == project)
    }
}
