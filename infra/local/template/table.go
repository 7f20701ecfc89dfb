package template

import (
	"slices"

	"go.yaml.in/yaml/v3"
)

var (
	indexProperties = set(`IndexName KeySchema Projection

		ContributorInsightsSpecification OnDemandThroughput ProvisionedThroughput WarmThroughput`)
	streamViews = []string{"KEYS_ONLY", "NEW_AND_OLD_IMAGES", "NEW_IMAGE", "OLD_IMAGE"}
)

func (e *evaluation) table(r *resource) *Table {
	o := e.properties(r)
	t := &Table{LogicalID: r.id, Name: e.value(r, "{name}"), Line: e.line(r)}
	t.Attributes = e.attributes(o)
	t.Key = e.keySchema(o, t.Attributes)
	t.Indexes = append(e.indexes(o, "GlobalSecondaryIndexes", t.Attributes), e.indexes(o, "LocalSecondaryIndexes", t.Attributes)...)
	if stream, ok := o.object("StreamSpecification"); ok {
		stream.only(set("StreamViewType ResourcePolicy"), "StreamSpecification")
		t.StreamView = stream.choice("StreamViewType", streamViews...)
	}
	if ttl, ok := o.object("TimeToLiveSpecification"); ok {
		ttl.only(set("AttributeName Enabled"), "TimeToLiveSpecification")
		ttl.need("Enabled")
		if ttl.bool("Enabled", false) {
			t.TTLAttribute = ttl.needText("AttributeName")
		}
	}
	e.unusedAttributes(o, t)
	return t
}

func (e *evaluation) attributes(o object) []Attribute {
	var list []Attribute
	for _, item := range e.items(o.need("AttributeDefinitions")) {
		if a, ok := e.object(item); ok {
			a.only(set("AttributeName AttributeType"), "an attribute definition")
			list = append(list, Attribute{a.needText("AttributeName"), a.choice("AttributeType", "S", "N", "B")})
		}
	}
	return list
}

func (e *evaluation) keySchema(o object, attributes []Attribute) []KeyElement {
	n := o.need("KeySchema")
	var list []KeyElement
	for _, item := range e.items(n) {
		if k, ok := e.object(item); ok {
			k.only(set("AttributeName KeyType"), "a key element")
			element := KeyElement{k.needText("AttributeName"), k.choice("KeyType", "HASH", "RANGE")}
			e.checkDefined(k.get("AttributeName"), element.Name, attributes)
			list = append(list, element)
		}
	}
	hash := slices.IndexFunc(list, func(k KeyElement) bool { return k.Role == "HASH" })
	if n != broken && n.Kind == yaml.SequenceNode && (hash != 0 || len(list) > 2 || len(list) == 2 && list[1].Role != "RANGE") {
		e.fail(n, "a key is one HASH element and at most one RANGE element, in this order")
	}
	return list
}

func (e *evaluation) checkDefined(n *yaml.Node, name string, attributes []Attribute) {
	defined := slices.ContainsFunc(attributes, func(a Attribute) bool { return a.Name == name })
	if name != "" && !defined {
		e.fail(n, "%s is not in AttributeDefinitions", name)
	}
}

func (e *evaluation) indexes(o object, property string, attributes []Attribute) []Index {
	var list []Index
	for _, item := range o.items(property) {
		x, ok := e.object(item)
		if !ok {
			continue
		}
		x.only(indexProperties, "an index")
		index := Index{
			Name:  x.needText("IndexName"),
			Key:   e.keySchema(x, attributes),
			Local: property == "LocalSecondaryIndexes",
		}
		if p, ok := e.object(x.need("Projection")); ok {
			p.only(set("ProjectionType NonKeyAttributes"), "a projection")
			index.Projection = p.choice("ProjectionType", "ALL", "KEYS_ONLY", "INCLUDE")
			index.NonKey = p.texts("NonKeyAttributes")
		}
		list = append(list, index)
	}
	return list
}

// unusedAttributes reports definitions that no key uses; DynamoDB refuses them.
func (e *evaluation) unusedAttributes(o object, t *Table) {
	used := map[string]bool{}
	for _, k := range t.Key {
		used[k.Name] = true
	}
	for _, x := range t.Indexes {
		for _, k := range x.Key {
			used[k.Name] = true
		}
	}
	for i, item := range o.items("AttributeDefinitions") {
		if i < len(t.Attributes) && t.Attributes[i].Name != "" && !used[t.Attributes[i].Name] {
			e.fail(item, "no key uses %s; DynamoDB defines key attributes only", t.Attributes[i].Name)
		}
	}
}
