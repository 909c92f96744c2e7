package stream

import (
	"math"
	"math/rand/v2"
	"strconv"
	"time"
)

// The vocabulary of the click records: modest, so that a model learns it within a demonstration's day.
const (
	ClickUsers      = 2000
	ClickItems      = 500
	ClickCategories = 20
	ClickSlots      = 8
	clickCohorts    = 8 // users of a cohort share their taste in categories
)

// DefaultDrift is how far preferences turn in a day of the curve, in whole turns. After a quarter turn, what a model knew
// of the fashions of items and categories says nothing any more.
const DefaultDrift = 0.15

// Standard deviations of the terms of a click's logit, and its mean. With these the best possible AUC is about 0.82,
// that of a logistic regression that goes on learning about 0.78, and one that stopped a day ago has lost 0.05
// (TestStaleModelsLose, at DefaultDrift).
const (
	clickMean        = -1.1
	itemTaste        = 0.8 // stays
	itemFashion      = 0.7 // drifts
	categoryFashion  = 0.6 // drifts
	cohortFashion    = 0.6 // drifts: cohort x category, which only a model with interactions can learn
	userTaste        = 0.4
	slotTaste        = 0.4
	priceTaste       = -0.8 // per unit of price, from 0 to 1
	ageTaste         = -0.6 // per unit of age, from 0 to 1
	popularityOfItem = 0.9  // exponents of Zipf's law
	popularityOfUser = 0.7
)

// Click is one impression and whether it was clicked.
type Click struct {
	User, Item, Category, Slot int     // from 0
	Price, Age                 float64 // 0 to 1, of two decimals
	Clicked                    bool
	P                          float64 // the probability that Clicked was drawn with: no part of the record
}

// Clicks draws click records from a logistic model whose preferences turn with time. It is immutable once made, and
// safe for concurrent use.
type Clicks struct {
	seed           uint64
	drift          float64 // turns per day
	users, items   *alias
	category       [ClickItems]int
	price          [ClickItems]float64
	taste          [ClickItems]float64
	item           [ClickItems][2]float64 // the two ends of a quarter turn
	cat            [ClickCategories][2]float64
	cohort         [clickCohorts][ClickCategories][2]float64
	user           [ClickUsers]float64
	slot           [ClickSlots]float64
	userWeights    []float64 // popularity, sums to 1
	userKeys       [ClickUsers][]byte
	jsonUser       [ClickUsers]string
	jsonItem       [ClickItems]string // with its category
	exampleStrings exampleStrings
}

// NewClicks builds the model for a seed: the same seed gives the same preferences and the same records. drift is in
// turns per day of the curve; 0 keeps preferences still.
func NewClicks(seed uint64, drift float64) *Clicks {
	rng := rand.New(rand.NewPCG(seed, 0xc11c5))
	c := &Clicks{seed: seed, drift: drift}
	c.userWeights = zipf(ClickUsers, popularityOfUser, 10)
	c.users = newAlias(c.userWeights)
	c.items = newAlias(zipf(ClickItems, popularityOfItem, 5))
	pair := func(sd float64) [2]float64 { return [2]float64{sd * rng.NormFloat64(), sd * rng.NormFloat64()} }
	for i := range ClickItems {
		c.category[i] = rng.IntN(ClickCategories)
		c.price[i] = math.Round(rng.Float64()*100) / 100
		c.taste[i] = itemTaste * rng.NormFloat64()
		c.item[i] = pair(itemFashion)
	}
	for k := range ClickCategories {
		c.cat[k] = pair(categoryFashion)
		for h := range clickCohorts {
			c.cohort[h][k] = pair(cohortFashion)
		}
	}
	for u := range ClickUsers {
		c.user[u] = userTaste * rng.NormFloat64()
		c.userKeys[u] = []byte("u" + strconv.Itoa(u))
		c.jsonUser[u] = `,"user":"u` + strconv.Itoa(u) + `","item":"i`
	}
	for s := range ClickSlots {
		c.slot[s] = slotTaste * rng.NormFloat64()
	}
	for i := range ClickItems {
		c.jsonItem[i] = strconv.Itoa(i) + `","category":"c` + strconv.Itoa(c.category[i]) + `","slot":"s`
	}
	c.exampleStrings = newExampleStrings()
	return c
}

// Draw is record number n, at an offset in the curve: the same arguments give the same record, whenever and wherever.
func (c *Clicks) Draw(n uint64, at time.Duration) Click {
	r := mixer(mix(c.seed ^ mix(n)))
	k := Click{
		User: c.users.draw(r.float(), r.float()),
		Item: c.items.draw(r.float(), r.float()),
		Slot: int(r.float() * ClickSlots),
		Age:  math.Round(r.float()*100) / 100,
	}
	k.Category, k.Price = c.category[k.Item], c.price[k.Item]
	k.P = c.probability(k, at)
	k.Clicked = r.float() < k.P
	return k
}

func (c *Clicks) probability(k Click, at time.Duration) float64 {
	sin, cos := math.Sincos(2 * math.Pi * c.drift * at.Hours() / 24)
	turn := func(p [2]float64) float64 { return cos*p[0] + sin*p[1] }
	logit := clickMean + c.taste[k.Item] + turn(c.item[k.Item]) + turn(c.cat[k.Category]) + turn(c.cohort[k.User%clickCohorts][k.Category]) +
		c.user[k.User] + c.slot[k.Slot] + priceTaste*(k.Price-0.5) + ageTaste*(k.Age-0.5)
	return 1 / (1 + math.Exp(-logit))
}

// Key is the record's key: its user.
func (c *Clicks) Key(k Click) []byte { return c.userKeys[k.User] }

// mix is the finaliser of splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// mixer is splitmix64 as a stream of numbers.
type mixer uint64

func (m *mixer) float() float64 { // in [0,1)
	v := mix(uint64(*m))
	*m += 0x9e3779b97f4a7c15
	return float64(v>>11) / (1 << 53)
}

// zipf gives n weights that fall as 1/(rank+shift)^exponent and sum to 1.
func zipf(n int, exponent, shift float64) []float64 {
	w, sum := make([]float64, n), 0.0
	for i := range w {
		w[i] = math.Pow(float64(i+1)+shift, -exponent)
		sum += w[i]
	}
	for i := range w {
		w[i] /= sum
	}
	return w
}

// alias draws from a discrete distribution in constant time (Walker's method).
type alias struct {
	keep  []float64
	other []int
}

func newAlias(weights []float64) *alias {
	n := len(weights)
	a := &alias{keep: make([]float64, n), other: make([]int, n)}
	var small, large []int
	for i, w := range weights {
		a.keep[i] = w * float64(n)
		a.other[i] = i
		if a.keep[i] < 1 {
			small = append(small, i)
		} else {
			large = append(large, i)
		}
	}
	for len(small) > 0 && len(large) > 0 {
		s, l := small[len(small)-1], large[len(large)-1]
		small = small[:len(small)-1]
		a.other[s] = l
		a.keep[l] -= 1 - a.keep[s]
		if a.keep[l] < 1 {
			large = large[:len(large)-1]
			small = append(small, l)
		}
	}
	for _, i := range append(small, large...) { // what rounding left over
		a.keep[i] = 1
	}
	return a
}

func (a *alias) draw(u, v float64) int {
	i := int(u * float64(len(a.keep)))
	if v < a.keep[i] {
		return i
	}
	return a.other[i]
}
