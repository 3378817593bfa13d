#![no_main]

daemonlet_fuzz::target!(checkpoint);
