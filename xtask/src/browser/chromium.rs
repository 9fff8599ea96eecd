//! A headless Chromium, driven by the DevTools protocol over two pipes.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};

use crate::outcome::Failure;
use crate::paths;
use crate::process::{Deadline, Running, show_tail, succeeds};

/// How long the browser may take to answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Names of the program on Debian, Fedora and Ubuntu.
const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// A browser with one tab.
pub(super) struct Browser {
    /// Ends the browser when it is dropped.
    running: Running,
    log: PathBuf,
    to: File,
    from: Receiver<Value>,
    session: String,
    last: u64,
    /// Events that nobody has asked for yet.
    events: Vec<Value>,
}

/// The browser's program, if there is one.
pub(super) fn program() -> Option<&'static str> {
    NAMES.into_iter().find(|name| succeeds(name, &["--version"]))
}

impl Browser {
    /// Starts the browser with its profile in `folder`, and opens a tab.
    pub(super) fn start(program: &str, folder: &Path) -> Result<Self, Failure> {
        Self::start_with(program, folder, &[])
    }

    /// Starts the browser likewise, with further options.
    pub(super) fn start_with(program: &str, folder: &Path, options: &[String]) -> Result<Self, Failure> {
        let pipes = ["to", "from"].map(|name| folder.join(name));
        for pipe in &pipes {
            mknodat(CWD, pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).map_err(std::io::Error::from)?;
        }
        // The browser reads descriptor 3 and writes descriptor 4, which only a shell gives it without unsafe code.
        let mut command = Command::new("sh");
        command.args(["-c", "to=$1 from=$2; shift 2; exec \"$@\" 3<\"$to\" 4>\"$from\"", "sh"]).args(&pipes);
        command.args([program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]);
        command.args(["--no-first-run", "--disable-background-networking", "--disable-component-update"]);
        command.args(["--disable-extensions", "--hide-scrollbars", "--remote-debugging-pipe"]);
        command.arg(format!("--user-data-dir={}", folder.join("profile").display())).args(options).arg("about:blank");
        let log = paths::log("browser");
        let running = Running::start_logged(&mut command, &log)?;
        // Opened in both directions, so that opening does not wait for a browser that does not start.
        let open = |path: &Path| OpenOptions::new().read(true).write(true).open(path);
        let (to, from) = (open(&pipes[0])?, open(&pipes[1])?);
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            for message in BufReader::new(from).split(0).map_while(Result::ok) {
                let Ok(value) = serde_json::from_slice::<Value>(&message) else { continue };
                if sender.send(value).is_err() {
                    return;
                }
            }
        });
        let (session, events) = (String::new(), Vec::new());
        let mut browser = Self { running, log, to, from: receiver, session, last: 0, events };
        let tab = browser.call("Target.createTarget", &json!({"url": "about:blank"}))?;
        let attach = json!({"targetId": tab["targetId"], "flatten": true});
        let attached = browser.call("Target.attachToTarget", &attach)?;
        browser.session = attached["sessionId"].as_str().unwrap_or_default().to_owned();
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), &json!({}))?;
        }
        Ok(browser)
    }

    /// Calls a method of the protocol, and returns its result.
    pub(super) fn call(&mut self, method: &str, parameters: &Value) -> Result<Value, Failure> {
        self.last += 1;
        let mut message = json!({"id": self.last, "method": method, "params": parameters});
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        let mut bytes = serde_json::to_vec(&message).map_err(|error| Failure::Failed(error.to_string()))?;
        bytes.push(0);
        self.to.write_all(&bytes)?;
        let id = self.last;
        let mut answer = self.receive(method, |message| message["id"] == id)?;
        if let Some(error) = answer.get("error") {
            return Err(Failure::Failed(format!("{method}: {error}")));
        }
        Ok(answer["result"].take())
    }

    /// Waits for a message. Events that come before it are kept.
    fn receive(&mut self, what: &str, is_it: impl Fn(&Value) -> bool) -> Result<Value, Failure> {
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let Ok(message) = self.from.recv_timeout(left) else {
                show_tail(&self.log, 20);
                return Err(Failure::Failed(format!("the browser did not answer {what}")));
            };
            if is_it(&message) {
                return Ok(message);
            }
            self.events.push(message);
        }
    }

    /// Opens a page and waits until it is loaded.
    pub(super) fn open(&mut self, url: &str) -> Result<(), Failure> {
        self.call("Page.navigate", &json!({"url": url}))?;
        let is_loaded = |message: &Value| message["method"] == "Page.loadEventFired";
        if let Some(at) = self.events.iter().position(is_loaded) {
            self.events.remove(at);
            return Ok(());
        }
        self.receive("Page.navigate", is_loaded).map(drop)
    }

    /// Parameters of the events of this name since the last call for it.
    pub(super) fn events(&mut self, name: &str) -> Vec<Value> {
        let (found, kept) = std::mem::take(&mut self.events).into_iter().partition(|event| event["method"] == name);
        self.events = kept;
        let found: Vec<Value> = found;
        found.into_iter().map(|mut event| event["params"].take()).collect()
    }

    /// The value of an expression in the page.
    pub(super) fn value(&mut self, expression: &str) -> Result<Value, Failure> {
        let parameters = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let mut answer = self.call("Runtime.evaluate", &parameters)?;
        match answer.get("exceptionDetails") {
            Some(details) => Err(Failure::Failed(format!("{expression}: {details}"))),
            None => Ok(answer["result"]["value"].take()),
        }
    }

    /// Sets the size of the window, and light or dark.
    pub(super) fn show(&mut self, width: u32, scheme: &str) -> Result<(), Failure> {
        let metrics = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500});
        self.call("Emulation.setDeviceMetricsOverride", &metrics)?;
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", &media).map(drop)
    }

    /// Takes certificates of authorities that it does not know.
    pub(super) fn trust_all(&mut self) -> Result<(), Failure> {
        self.call("Security.enable", &json!({}))?;
        self.call("Security.setIgnoreCertificateErrors", &json!({"ignore": true})).map(drop)
    }

    /// Ends the browser, which completes its logs.
    pub(super) fn end(mut self) -> Result<(), Failure> {
        self.call("Browser.close", &json!({}))?;
        match self.running.wait(Deadline::after(PATIENCE))? {
            Some(_) => Ok(()),
            None => Err(Failure::Failed("the browser did not end".to_owned())),
        }
    }

    /// A picture of the whole page, as base64.
    pub(super) fn picture(&mut self) -> Result<String, Failure> {
        let options = json!({"format": "png", "captureBeyondViewport": false});
        Ok(self.call("Page.captureScreenshot", &options)?["data"].as_str().unwrap_or_default().to_owned())
    }
}

/// An empty folder for a browser.
pub(super) fn folder() -> Result<PathBuf, Failure> {
    let folder = paths::own("browser");
    paths::empty(&folder)?;
    Ok(folder)
}
