#![no_main]

daemonlet_fuzz::target!(files);
