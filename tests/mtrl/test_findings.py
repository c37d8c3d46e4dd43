from rft_agent_sdk.mtrl.findings import Finding, Severity, worst


def found(severity: Severity) -> Finding:
    return Finding("kind", severity, "file.json: key", "wanted this, got that", "Change it.")


def test_the_worst_of_several_findings_is_the_gravest():
    findings = [found(Severity.NOTE), found(Severity.ERROR), found(Severity.WARNING)]
    assert worst(findings) is Severity.ERROR
    assert worst(findings[:1]) is Severity.NOTE


def test_no_finding_has_no_severity():
    assert worst([]) is None
