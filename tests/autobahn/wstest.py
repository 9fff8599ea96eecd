# The conformance suite's own entry point (Python 2.7), held to the loopback interface and to JSON reports.
from autobahntestsuite import choosereactor  # noqa: F401 (must come before anything else of Twisted)
from autobahntestsuite import fuzzing
from autobahntestsuite.wstest import run

listen = fuzzing.listenWS
fuzzing.listenWS = lambda factory, context: listen(factory, context, interface="127.0.0.1")

reports = fuzzing.FuzzingFactory.createReports.__func__
fuzzing.FuzzingFactory.createReports = lambda self: reports(self, produceHtml=False, produceJson=True)

run()
