//! What the kernel reports about this process.

use std::fs;

use crate::core::metrics::ProcessFact;

/// The unit of times in `/proc/<pid>/stat` (`USER_HZ`), the same on every Linux that runs a kubelet.
const TICKS: f64 = 100.0;

/// The present values; `None` if `/proc` does not have them.
pub fn fact() -> Option<ProcessFact> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let status = fs::read_to_string("/proc/self/status").ok()?;
    Some(ProcessFact {
        cpu_seconds: cpu(&stat)?,
        resident_bytes: resident(&status)?,
        fds: fs::read_dir("/proc/self/fd").ok()?.count(),
    })
}

/// `utime` and `stime` of proc(5); the name before them may contain anything, even a closing bracket.
fn cpu(stat: &str) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u32>().ok();
    Some(f64::from(ticks()?) / TICKS + f64::from(ticks()?) / TICKS)
}

fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_is_read() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 900 0 0 0 125 50 0 0 20 0 2 0 100 1000 200";
        assert_eq!(cpu(stat), Some(1.75));
        assert_eq!(cpu("nonsense"), None);
        assert_eq!(resident("Name:\tx\nVmRSS:\t    1234 kB\n"), Some(1234 * 1024));
        let now = fact().unwrap();
        assert!(now.resident_bytes > 1 << 20 && now.fds > 2, "{now:?}");
    }
}
