package translate

import "fmt"

// A producer id, as clients see it (shown) and as a cluster has it:
//
//	bits   0–39  the id that the issuing cluster gave
//	bits  40–50  the generation that issued it, 1 to 2047; 0: not issued through us
//	bits  51–61  on a cluster only: the current generation, if the cluster may know the shown id from an earlier one; else 0
//	bits  62–63  0
//
// So shown ids are unique across clusters and generations, and a cluster that a producer comes back to sees a new id
// instead of a hole in the sequence of the old one. All of it is bit arithmetic, no state.
const (
	idBits         = 40
	generationBits = 11
	currentShift   = idBits + generationBits
	taggedBits     = currentShift + generationBits

	idLimit         = 1 << idBits
	GenerationLimit = 1 << generationBits // generations are below it

	// GapMarkerID is the producer id of gap markers, which no producer has.
	GapMarkerID int64 = 1 << taggedBits
)

// Show returns the producer id that clients see for an id issued in generation g. A negative id (none) stays as it is.
func Show(id int64, g Generation) (int64, error) {
	switch {
	case id < 0:
		return id, nil
	case id >= idLimit:
		return 0, fmt.Errorf("producer id %d is not below %d", id, int64(idLimit))
	case g < 1 || g >= GenerationLimit:
		return 0, fmt.Errorf("generation %d is not in [1, %d)", g, GenerationLimit)
	}
	return id | int64(g)<<idBits, nil
}

// issuedIn returns the generation that issued a shown id; 0 if it was not issued through us: negative, without a
// generation, or with bits that a shown id does not have.
func issuedIn(shown int64) Generation {
	if shown < 0 || shown>>currentShift != 0 {
		return 0
	}
	return Generation(shown >> idBits)
}

// OnCluster returns the id under which the active cluster of generation current gets the batches of a shown id. In the
// generation that issued it and in the next one it is the shown id: each of the two clusters sees it for the first time.
// From then on it carries the current generation. Ids that were not issued through us pass unchanged. current must be
// below GenerationLimit; Preflight refuses to get there, so it panics otherwise.
func OnCluster(shown int64, current Generation) int64 {
	issued := issuedIn(shown)
	if issued == 0 || current <= issued+1 {
		return shown
	}
	if current >= GenerationLimit {
		panic(fmt.Sprintf("translate: generation %d is not below %d", current, GenerationLimit))
	}
	return shown | int64(current)<<currentShift
}

// StripTag returns the shown id of an id that OnCluster made. Other ids pass unchanged.
func StripTag(onCluster int64) int64 {
	shown := onCluster & (1<<currentShift - 1)
	if onCluster < 0 || onCluster >= GapMarkerID || issuedIn(shown) == 0 {
		return onCluster
	}
	return shown
}
