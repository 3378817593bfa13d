#![no_main]

daemonlet_fuzz::target!(fields);
