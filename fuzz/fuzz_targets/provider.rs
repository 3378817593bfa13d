#![no_main]

daemonlet_fuzz::target!(provider);
