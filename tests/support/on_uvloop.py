"""A pytest plugin: the tests run on uvloop, as a program does whose web server has installed it."""

import warnings

import uvloop

with warnings.catch_warnings():
    # Since Python 3.12 it warns: a program is to call `uvloop.run`. Not all that tests run can be told so.
    warnings.simplefilter("ignore", DeprecationWarning)
    uvloop.install()
