#![no_main]

daemonlet_fuzz::target!(runtime);
