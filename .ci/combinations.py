#!/usr/bin/env python3
"""Checks template.yaml, as SAM translates it, in all combinations of its parameters.

In each combination that the Rules let pass, whatever exists refers only to what
exists too: by Ref, Fn::GetAtt, Fn::Sub and DependsOn. Then a few combinations are
chosen in which every resource is seen in every form that conditions can give it;
each of them is translated, resolved, and read by cfn-lint.

A parameter that conditions or rules read is tried with its AllowedValues, or with its
default, with what it is compared with, and with a sample of anything else.
"""

import copy
import itertools
import json
import logging
import re
import sys

from cfnlint.api import lint
from samcli.lib.translate.sam_template_validator import SamTemplateValidator
from samcli.yamlhelper import yaml_parse

# What a parameter can be besides its default and what it is compared with.
SAMPLES = {
    "AlarmEmail": "ops@example.com",
    "AuditSchedule": "cron(0 3 * * ? *)",
    "CertificateArn": "arn:aws:acm:us-east-1:123456789012:certificate/12345678-1234-1234-1234-123456789012",
    "DomainName": "chat.example.com",
    "HostedZoneId": "Z0123456789ABCDEFGHIJ",
    "JwksUrl": "https://login.example.com/.well-known/jwks.json",
    "JwtIssuer": "https://login.example.com",
}
PSEUDO = {
    "AWS::AccountId", "AWS::NotificationARNs", "AWS::NoValue", "AWS::Partition",
    "AWS::Region", "AWS::StackId", "AWS::StackName", "AWS::URLSuffix",
}
NO_VALUE = {"Ref": "AWS::NoValue"}


def translated(source, values):
    """The template as CloudFormation gets it from SAM."""

    class Managed:
        def load(self):
            sys.exit("template.yaml names a policy that AWS manages: write out what is allowed")

    validator = SamTemplateValidator(copy.deepcopy(source), Managed(), region="us-east-1", parameter_overrides=values)
    return yaml_parse(validator.get_translated_template_if_valid())


def call(node):
    """The function that node calls, and its argument; None if it calls none."""
    if isinstance(node, dict) and len(node) == 1:
        (name, argument), = node.items()
        if name in ("Ref", "Condition") or name.startswith("Fn::"):
            return name, argument
    return None, None


def walk(node):
    yield node
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from walk(child)


def parameters_of(template):
    """The parameters that conditions and rules read, and the values to try."""
    compared = {}
    for node in walk([template.get("Conditions", {}), template.get("Rules", {})]):
        name, argument = call(node)
        if name == "Ref":
            compared.setdefault(argument, [])
        if name == "Fn::Equals":
            literals = [str(a) for a in argument if not isinstance(a, dict)]
            for operand in argument:
                if call(operand)[0] == "Ref":
                    compared.setdefault(operand["Ref"], []).extend(literals)
    tried = {}
    for name, literals in sorted(compared.items()):
        declared = template["Parameters"].get(name)
        if declared is None:
            sys.exit(f"conditions read {name}, which is no parameter")
        if "AllowedValues" in declared:
            values = declared["AllowedValues"]
        else:
            values = literals + [declared[key] for key in ("Default", "MinValue", "MaxValue") if key in declared]
            if declared["Type"] == "Number":
                values.append(max(int(declared.get("MinValue", 0)), 1))
            elif name in SAMPLES:
                values.append(SAMPLES[name])
            else:
                sys.exit(f"{sys.argv[0]}: give SAMPLES a value of {name}, which conditions read")
        tried[name] = sorted({str(v) for v in values if allowed(declared, str(v))})
    return tried


def allowed(declared, value):
    if declared["Type"] == "Number":
        return float(declared.get("MinValue", "-inf")) <= float(value) <= float(declared.get("MaxValue", "inf"))
    return re.fullmatch(declared.get("AllowedPattern", "(?s).*"), value) is not None


def compiled(node, conditions):
    """A function from parameters' values to the condition's."""
    name, argument = call(node)
    if name == "Condition":
        return compiled(conditions[argument], conditions)
    if name == "Fn::Equals":
        def operand(a):
            if call(a)[0] == "Ref":
                parameter = a["Ref"]
                return lambda values: values[parameter]
            return lambda values: str(a)
        left, right = map(operand, argument)
        return lambda values: left(values) == right(values)
    parts = [compiled(part, conditions) for part in argument]
    if name == "Fn::Not":
        return lambda values: not parts[0](values)
    if name == "Fn::And":
        return lambda values: all(part(values) for part in parts)
    if name == "Fn::Or":
        return lambda values: any(part(values) for part in parts)
    sys.exit(f"{sys.argv[0]}: {name} is not known in a condition")


def combinations(template):
    """What the conditions can be together, each with parameters that make it so; the
    numbers of all combinations of parameters and of those that the rules refuse."""
    conditions = template.get("Conditions", {})
    decide = {name: compiled(node, conditions) for name, node in conditions.items()}
    rules = []
    for rule in template.get("Rules", {}).values():
        applies = compiled(rule["RuleCondition"], conditions) if "RuleCondition" in rule else lambda values: True
        rules += [(applies, compiled(a["Assert"], conditions)) for a in rule["Assertions"]]
    tried = parameters_of(template)
    worlds, number, refused = {}, 0, 0
    for chosen in itertools.product(*tried.values()):
        number += 1
        values = dict(zip(tried, chosen))
        if any(applies(values) and not holds(values) for applies, holds in rules):
            refused += 1
            continue
        worlds.setdefault(tuple(f(values) for f in decide.values()), values)
    return list(decide), worlds, number, refused


def references(node, guards, path):
    """What node refers to: the name, under which branches of Fn::If, and where."""
    name, argument = call(node)
    if name == "Ref":
        yield argument, guards, path
    elif name == "Fn::GetAtt":
        yield (argument.split(".") if isinstance(argument, str) else argument)[0], guards, path
    elif name == "Fn::Sub":
        text, variables = argument if isinstance(argument, list) else (argument, {})
        yield from references(list(variables.values()), guards, path)
        for used in re.findall(r"\$\{([^!}][^}]*)\}", text):
            if used not in variables:
                yield used.split(".")[0], guards, path
    elif name == "Fn::If":
        condition, yes, no = argument
        yield from references(yes, guards | {(condition, True)}, path)
        yield from references(no, guards | {(condition, False)}, path)
    elif isinstance(node, dict):
        for key, child in node.items():
            yield from references(child, guards, f"{path}.{key}")
    elif isinstance(node, list):
        for i, child in enumerate(node):
            yield from references(child, guards, f"{path}[{i}]")


def parts_of(template):
    for section in ("Resources", "Outputs"):
        for name, part in template[section].items():
            guards = {(part["Condition"], True)} if "Condition" in part else set()
            yield f"{section}.{name}", part, frozenset(guards)


def dangling(template, names, worlds):
    """References to what does not exist, one line each."""
    index = {name: i for i, name in enumerate(names)}
    resources = template["Resources"]
    found = []
    for path, part, guards in parts_of(template):
        body = {key: value for key, value in part.items() if key not in ("Condition", "DependsOn", "Metadata", "Type")}
        used = list(references(body, guards, path))
        depends = part.get("DependsOn", [])
        used += [(d, guards, path + ".DependsOn") for d in ([depends] if isinstance(depends, str) else depends)]
        for target, under, where in used:
            if target in PSEUDO or target in template["Parameters"]:
                continue
            if target not in resources:
                found.append(f"{where}: there is no {target}")
                continue
            condition = resources[target].get("Condition")
            if condition is None or (condition, True) in under:
                continue
            for world, values in worlds.items():
                if not world[index[condition]] and all(world[index[c]] == value for c, value in under):
                    found.append(f"{where}: {target} is not there with {json.dumps(values)}")
                    break
    return found


def conditions_in(part):
    used = {part["Condition"]} if "Condition" in part else set()
    return sorted(used | {argument[0] for name, argument in map(call, walk(part)) if name == "Fn::If"})


def chosen(template, names, worlds):
    """Combinations that show every resource and output in all its forms."""
    index = {name: i for i, name in enumerate(names)}
    def forms(world):
        return {(path, tuple(world[index[c]] for c in used)) for path, used in parts}
    parts = [(path, conditions_in(part)) for path, part, _ in parts_of(template)]
    of_world = {world: forms(world) for world in worlds}
    missing = set().union(*of_world.values())
    number = len(missing)
    picked = []
    while missing:
        best = max(of_world, key=lambda world: len(of_world[world] & missing))
        missing -= of_world[best]
        picked.append(best)
    return picked, number


def resolved(node, truth):
    """node without Fn::If and AWS::NoValue."""
    name, argument = call(node)
    if name == "Fn::If":
        return resolved(argument[1] if truth[argument[0]] else argument[2], truth)
    if isinstance(node, dict):
        children = {key: resolved(child, truth) for key, child in node.items()}
        return node if node == NO_VALUE else {key: child for key, child in children.items() if child != NO_VALUE}
    if isinstance(node, list):
        return [child for child in (resolved(item, truth) for item in node) if child != NO_VALUE]
    return node


def lint_resolved(source, values, names, world):
    """What cfn-lint says of one combination, as if nothing in it were conditional."""
    everything = {name: declared.get("Default", SAMPLES.get(name)) for name, declared in source["Parameters"].items()}
    for name, value in values.items():
        everything[name] = int(value) if source["Parameters"][name]["Type"] == "Number" else value
    template = translated(source, {name: str(value) for name, value in everything.items()})
    truth = dict(zip(names, world))
    for section in ("Resources", "Outputs"):
        kept = {}
        for name, part in template[section].items():
            if "Condition" not in part or truth[part["Condition"]]:
                kept[name] = resolved({key: value for key, value in part.items() if key != "Condition"}, truth)
        template[section] = kept
    for name, value in everything.items():
        template["Parameters"][name]["Default"] = value
    template.pop("Conditions", None)
    template.pop("Rules", None)
    stuck = list(never_deleted(template["Resources"], everything["DeletionProtection"] == "true"))
    found = lint(json.dumps(template), regions=["us-east-1"])
    return stuck + [f"{match.rule.id}: {match.message} ({'.'.join(map(str, match.path or []))})" for match in found if match.rule.id.startswith("E")]


def never_deleted(resources, protected):
    """What keeps a stack from being deleted, or rolled back, or stays of an unprotected one."""
    for name, resource in resources.items():
        policy = resource.get("DeletionPolicy", "Delete")
        refuses = resource.get("Properties", {}).get("DeletionProtectionEnabled", False)
        if refuses == {"Ref": "DeletionProtection"}:
            refuses = protected
        if refuses is not False and policy != "Retain":
            yield f"Resources.{name} refuses to be deleted, with DeletionPolicy {policy}: neither a rollback nor the stack's deletion would end"
        if not protected and {policy, resource.get("UpdateReplacePolicy", "Delete")} != {"Delete"}:
            yield f"Resources.{name} stays when an unprotected stack is deleted"


def sees_what_is_wrong(template, names, worlds):
    """Whether a reference that dangles is found: one conditional resource after the
    other that others need unconditionally loses them."""
    users = {path.split(".")[1] for path, part, guards in parts_of(template) if path.startswith("Resources.") and guards
             and any(t in template["Resources"] and "Condition" in template["Resources"][t] for t, _, _ in references(part.get("Properties", {}), guards, path))}
    return users and all(dangles_alone(template, user, names, worlds) for user in users)


def dangles_alone(template, user, names, worlds):
    """Whether a reference of this resource is found once it has no condition."""
    broken = dict(template, Resources=dict(template["Resources"]))
    broken["Resources"][user] = {key: value for key, value in template["Resources"][user].items() if key != "Condition"}
    return any(line.startswith(f"Resources.{user}.") for line in dangling(broken, names, worlds))


def main():
    logging.disable(logging.WARNING)  # SAM's, of metrics of its own
    source = yaml_parse(open("template.yaml", encoding="utf-8").read())
    template = translated(source, {name: SAMPLES[name] for name, p in source["Parameters"].items() if "Default" not in p})
    names, worlds, number, refused = combinations(template)
    print(f"{number} combinations of parameters, {refused} refused by rules, {len(worlds)} sets of conditions")
    problems = dangling(template, names, worlds)
    if not sees_what_is_wrong(template, names, worlds):
        problems.append(f"{sys.argv[0]} does not see a reference that dangles")
    for i, name in enumerate(names):
        if len({world[i] for world in worlds}) < 2:
            problems.append(f"the condition {name} is always the same")
    picked, forms = chosen(template, names, worlds)
    print(f"{len(picked)} of them show all {forms} forms of {len(template['Resources'])} resources and {len(template['Outputs'])} outputs")
    for world in picked:
        for line in lint_resolved(source, worlds[world], names, world):
            problems.append(f"{line} with {json.dumps(worlds[world])}")
    for problem in problems:
        print(problem, file=sys.stderr)
    sys.exit(1 if problems else 0)


main()
