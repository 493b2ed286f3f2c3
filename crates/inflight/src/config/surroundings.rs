//! What the configuration depends on outside its file: whether programs and files are there.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::error::{Located, Problems};

/// Where a configuration is judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Surroundings {
    /// On the machine that runs it: programs and files must be there.
    ThisMachine {
        /// The folders in which programs are looked for, as in `PATH`.
        path: OsString,
    },
    /// Anywhere: only the file is judged.
    Elsewhere,
}

impl Surroundings {
    /// Takes the surroundings from the process's environment.
    #[must_use]
    pub fn of_this_process() -> Self {
        Self::ThisMachine {
            path: env::var_os("PATH").unwrap_or_default(),
        }
    }

    /// Checks that a program can be started. `path` replaces `PATH` when the replica sets its own.
    pub(super) fn check_program(
        &self,
        command: &Located<Vec<String>>,
        own_path: Option<&str>,
        problems: &mut Problems,
    ) {
        let (Self::ThisMachine { path }, Some(program)) = (self, command.value.first()) else {
            return;
        };
        let path = own_path.map_or_else(|| path.clone(), OsString::from);
        let mut place = command.place.clone();
        place.key.push_str("[0]");
        if program.is_empty() {
            problems.refuse(&place, "\"\" names no program", PROGRAMS);
        } else if program.contains("{port") || program.contains("{replica}") {
            // Each replica has a program of its own; its start will tell.
        } else if program.contains('/') {
            if let Err(why) = executable(Path::new(program)) {
                problems.refuse(&place, format!("{program:?} {why}"), PROGRAMS);
            }
        } else {
            let mut found = env::split_paths(&path).map(|folder| executable(&folder.join(program)));
            // The first that can be run wins; else say of one that is there why it cannot.
            let mut why = "is not found in PATH".to_owned();
            let runs = found.any(|one| match one {
                Ok(()) => true,
                Err(Refused::Absent) => false,
                Err(refused) => {
                    why = format!("{refused} where PATH finds it");
                    false
                }
            });
            if !runs {
                problems.refuse(&place, format!("{program:?} {why}"), PROGRAMS);
            }
        }
    }

    /// Checks that the folder is there in which a file is to be written.
    pub(super) fn check_folder_of(&self, file: &Located<String>, problems: &mut Problems) {
        let folder = Path::new(&file.value).parent();
        if *self != Self::Elsewhere
            && let Some(folder) = folder.filter(|folder| !folder.is_dir())
        {
            let what = format!("{}: there is no such folder", folder.display());
            problems.refuse(&file.place, what, "a file in a folder that is there");
        }
    }

    /// Checks that a file with a secret is there and that nobody else reads it.
    pub(super) fn check_secret(&self, file: &Located<String>, problems: &mut Problems) {
        if *self == Self::Elsewhere {
            return;
        }
        if let Err(why) = read_secret(Path::new(&file.value)) {
            let what = format!("{:?} {why}", file.value);
            problems.refuse(&file.place, what, "a file that inflight alone can read");
        }
    }
}

/// Why a file gives no secret.
#[derive(Debug, thiserror::Error)]
pub enum NoSecret {
    /// It cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// Others can read or change it.
    #[error("is open to others (mode {mode:03o}); `chmod 600` closes it")]
    OpenToOthers {
        /// Its permissions.
        mode: u32,
    },
    /// It holds nothing, or far too much.
    #[error("holds no token: it is {0}")]
    NoToken(&'static str),
}

/// Reads a secret from a file that its owner alone can read: its text without the white space
/// around it.
///
/// # Errors
/// Why there is none.
pub fn read_secret(path: &Path) -> Result<String, NoSecret> {
    const OTHERS: u32 = 0o077;
    const PERMISSIONS: u32 = 0o777;
    const BYTES_MAX: u64 = 4096;
    if !fs::metadata(path)?.is_file() {
        return Err(NoSecret::NoToken("not a regular file"));
    }
    let file = fs::File::open(path)?;
    let mode = file.metadata()?.permissions().mode();
    if mode & OTHERS != 0 {
        let mode = mode & PERMISSIONS;
        return Err(NoSecret::OpenToOthers { mode });
    }
    let mut text = String::new();
    let read = file.take(BYTES_MAX + 1).read_to_string(&mut text)?;
    if u64::try_from(read).unwrap_or(u64::MAX) > BYTES_MAX {
        return Err(NoSecret::NoToken("longer than 4096 bytes"));
    }
    match text.trim() {
        "" => Err(NoSecret::NoToken("empty")),
        secret if secret.contains(char::is_whitespace) => {
            Err(NoSecret::NoToken("more than one word"))
        }
        secret => Ok(secret.to_owned()),
    }
}

const PROGRAMS: &str = "a program in PATH, or the path of an executable file";

/// Why a file cannot be started.
#[derive(Clone, Copy, Debug, thiserror::Error)]
enum Refused {
    #[error("does not exist")]
    Absent,
    #[error("is not a file")]
    NoFile,
    #[error("is not executable")]
    NotExecutable,
}

fn executable(path: &Path) -> Result<(), Refused> {
    const ANYONE: u32 = 0o111;
    let metadata = fs::metadata(path).map_err(|_| Refused::Absent)?;
    match metadata.permissions().mode() & ANYONE {
        _ if !metadata.is_file() => Err(Refused::NoFile),
        0 => Err(Refused::NotExecutable),
        _ => Ok(()),
    }
}
