//! `make demo`: the agent over an example folder, into a scratch manifest folder.
//!
//! Shows what it wrote, changes the ConfigMap, shows that the data follows while the instance stays,
//! and ends. Every step waits until a file is what it should be.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::time::Duration;
use std::time::Instant;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// How long one step may take before the demo gives up.
const PATIENCE: Duration = Duration::from_secs(20);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(20);

fn main() -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let demo = Demo::prepare(scratch.path())?;
    let mut agent = demo.start()?;
    let shown = demo.show();
    // An agent that ended by itself has said why.
    let _ = agent.kill();
    agent.wait()?;
    shown
}

/// The folders of one demo.
struct Demo {
    root: PathBuf,
    program: PathBuf,
}

impl Demo {
    fn prepare(root: &Path) -> Result<Self> {
        let demo = Self { root: root.to_owned(), program: program()? };
        for folder in ["daemonsets.d", "manifests", "kubelet"] {
            fs::create_dir(demo.path(folder))?;
        }
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/demo/daemonset.yaml");
        fs::copy(example, demo.example())?;
        let root = root.display();
        fs::write(
            demo.path("daemonlet.toml"),
            format!(
                "node-name = \"demo-node\"\n\
                 kubeconfig = \"\"\n\
                 runtime-endpoint = \"\"\n\
                 folders = [\"{root}/daemonsets.d\"]\n\
                 manifest-dir = \"{root}/manifests\"\n\
                 kubelet-root = \"{root}/kubelet\"\n\
                 state-dir = \"{root}/state\"\n\
                 run-dir = \"{root}/run\"\n\
                 [node]\n\
                 kubelet-version = \"v1.36.2\"\n\
                 [log]\n\
                 level = \"warn\"\n"
            ),
        )?;
        Ok(demo)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn example(&self) -> PathBuf {
        self.path("daemonsets.d/demo.yaml")
    }

    fn start(&self) -> Result<Child> {
        say("The agent starts: a folder with a DaemonSet, no API server, no kubelet");
        println!("$ daemonlet run --config daemonlet.toml");
        Ok(Command::new(&self.program).arg("run").arg("--config").arg(self.path("daemonlet.toml")).spawn()?)
    }

    fn show(&self) -> Result<()> {
        let begin = Instant::now();
        let manifest = self.wait("a manifest", || first_file(&self.path("manifests")))?;
        say(&format!("A static pod, {} ms later", begin.elapsed().as_millis()));
        print!("{}", fs::read_to_string(&manifest)?);
        say("Its data, where the kubelet looks for the pod's volumes");
        tree(&self.path("kubelet"), 0)?;
        self.status()?;

        say("The ConfigMap changes: mtu 1500 becomes 9000");
        let text = fs::read_to_string(self.example())?;
        fs::write(self.path("daemonsets.d/.demo.yaml"), text.replace("1500", "9000"))?;
        fs::rename(self.path("daemonsets.d/.demo.yaml"), self.example())?;
        let begin = Instant::now();
        let data = find(&self.path("kubelet"), "10-demo.conflist").ok_or("the data is not there")?;
        self.wait("the new data", || fs::read_to_string(&data).ok().filter(|text| text.contains("9000")))?;
        println!("{} ms later {} says:", begin.elapsed().as_millis(), self.short(&data));
        print!("{}", fs::read_to_string(&data)?);
        let now = first_file(&self.path("manifests")).ok_or("the manifest is gone")?;
        if now != manifest {
            return Err("the change gave a new instance".into());
        }
        say("The instance is the same: no restart");
        self.status()?;
        say("`unknown` is the truth: no kubelet runs here that would start the pod, and no runtime is asked");
        println!("On a node the kubelet reads the manifest folder and starts it; with runtime-endpoint or kubeconfig");
        println!("the agent knows how it is. Next: target/debug/daemonlet render -f examples/cni --node-name n1");
        Ok(())
    }

    fn status(&self) -> Result<()> {
        say("What the agent says");
        println!("$ daemonlet status --config daemonlet.toml");
        let config = self.path("daemonlet.toml");
        let output = Command::new(&self.program).arg("status").arg("--config").arg(config).output()?;
        print!("{}", String::from_utf8_lossy(&output.stdout));
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    fn short(&self, path: &Path) -> String {
        path.strip_prefix(&self.root).unwrap_or(path).display().to_string()
    }

    /// Looks again and again until there is something to see.
    fn wait<T>(&self, what: &str, look: impl Fn() -> Option<T>) -> Result<T> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = look() {
                return Ok(found);
            }
            if Instant::now() > deadline {
                return Err(format!("no sign of {what} within {} s", PATIENCE.as_secs()).into());
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// The binary that was built beside this example.
fn program() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let folder = own.parent().and_then(Path::parent).ok_or("no target folder")?;
    Ok(folder.join("daemonlet"))
}

fn say(text: &str) {
    println!("\n== {text}");
}

/// The first file of `folder` that a kubelet would read.
fn first_file(folder: &Path) -> Option<PathBuf> {
    sorted(folder).ok()?.into_iter().find(|path| !name(path).starts_with('.'))
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn sorted(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<std::io::Result<_>>()?;
    paths.sort();
    Ok(paths)
}

/// The link named `wanted` below `folder`.
fn find(folder: &Path, wanted: &str) -> Option<PathBuf> {
    for path in sorted(folder).ok()? {
        if path.is_symlink() {
            if name(&path) == wanted {
                return Some(path);
            }
        } else if path.is_dir()
            && let Some(found) = find(&path, wanted)
        {
            return Some(found);
        }
    }
    None
}

/// Prints folders, files and links below `folder`.
fn tree(folder: &Path, depth: usize) -> Result<()> {
    println!("{}{}/", "  ".repeat(depth), name(folder));
    for path in sorted(folder)? {
        if path.is_symlink() {
            println!("{}{} -> {}", "  ".repeat(depth + 1), name(&path), fs::read_link(&path)?.display());
        } else if path.is_dir() {
            tree(&path, depth + 1)?;
        } else {
            println!("{}{}", "  ".repeat(depth + 1), name(&path));
        }
    }
    Ok(())
}
