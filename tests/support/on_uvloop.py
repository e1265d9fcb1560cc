"""A pytest plugin: the tests run on uvloop, as a program does whose web server has installed it."""

import uvloop

uvloop.install()
