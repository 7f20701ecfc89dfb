package template

var (
	indexProperties = set(`IndexName KeySchema Projection

		ContributorInsightsSpecification OnDemandThroughput ProvisionedThroughput WarmThroughput`)
	streamViews = []string{"KEYS_ONLY", "NEW_AND_OLD_IMAGES", "NEW_IMAGE", "OLD_IMAGE"}
)

func (e *evaluation) table(r *resource) *Table {
	o := e.properties(r)
	t := &Table{LogicalID: r.id, Name: e.value(r, "{name}"), Line: e.line(r)}
	t.Attributes = e.attributes(o)
	t.Key = e.keySchema(o)
	t.Indexes = e.indexes(o)
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

func (e *evaluation) keySchema(o object) []KeyElement {
	var list []KeyElement
	for _, item := range e.items(o.need("KeySchema")) {
		if k, ok := e.object(item); ok {
			k.only(set("AttributeName KeyType"), "a key element")
			list = append(list, KeyElement{k.needText("AttributeName"), k.choice("KeyType", "HASH", "RANGE")})
		}
	}
	return list
}

func (e *evaluation) indexes(o object) []Index {
	var list []Index
	for _, item := range o.items("GlobalSecondaryIndexes") {
		x, ok := e.object(item)
		if !ok {
			continue
		}
		x.only(indexProperties, "an index")
		index := Index{
			Name: x.needText("IndexName"),
			Key:  e.keySchema(x),
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
