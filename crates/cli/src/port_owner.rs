use std::fs;
use std::net::SocketAddr;

/// The state LISTEN of a socket in /proc/net/tcp.
const LISTEN: &str = "0A";

/// The process that listens at this port, as `name (process 12)`; `None` if it cannot be found.
pub(crate) fn of(address: SocketAddr) -> Option<String> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
    let sockets: Vec<String> = tables
        .iter()
        .flat_map(|table| listeners(table, address.port()))
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    let is_process = |entry: &fs::DirEntry| entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit);
    for process in fs::read_dir("/proc").ok()?.flatten().filter(is_process) {
        // The descriptors of other users' processes cannot be read.
        let Ok(descriptors) = fs::read_dir(process.path().join("fd")) else { continue };
        let holds = descriptors.flatten().any(|descriptor| {
            fs::read_link(descriptor.path())
                .is_ok_and(|link| sockets.iter().any(|socket| link.as_os_str() == &**socket))
        });
        if holds {
            let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            return Some(format!("{} (process {})", name.trim(), process.file_name().display()));
        }
    }
    None
}

/// The inodes of sockets that listen at `port`. A line of the table is `sl local_address rem_address st ... inode`.
fn listeners(table: &str, port: u16) -> Vec<&str> {
    let port = format!("{port:04X}");
    table
        .lines()
        .skip(1)
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            let (local, state, inode) = (fields.get(1)?, fields.get(3)?, fields.get(9)?);
            (*state == LISTEN && local.rsplit(':').next() == Some(&port)).then_some(*inode)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_listeners_in_the_kernels_table() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:20FB 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0 100 0\n\
            1: 0100007F:20FB 0100007F:E1D2 01 00000000:00000000 00:00000000 00000000  1000        0 4712 1 0 20 4\n";
        assert_eq!(listeners(table, 8443), ["4711"]);
        assert_eq!(listeners(table, 8444), [""; 0]);
    }

    #[test]
    fn finds_this_process_by_its_port() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port_owner = of(listener.local_addr().unwrap()).unwrap();
        assert!(port_owner.ends_with(&format!("(process {})", std::process::id())), "{port_owner}");
    }
}
