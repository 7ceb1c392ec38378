/** A row of a tree, wherever it is drawn. */
export interface TreeLine {
  /** Unique among the rows. */
  key: string
  depth: number
  /** Index of the row around this one; −1 at the top. */
  parent: number
  /** Which of its siblings this is, from 1, and how many they are. */
  nth: number
  siblings: number
  /** null: there is nothing to open. */
  isOpen?: boolean | null
}

interface Part<Row> {
  start: number
  length: number
  rows: Row[] | null
  make: (offset: number) => Row
}

/**
 * The rows of a tree one below the other. Rows of which nothing is known yet are a stretch, made when they are looked
 * at: of a scope with 100,000 nodes only those that were seen exist.
 */
export class TreeLines<Row extends TreeLine> {
  private readonly parts: Part<Row>[] = []
  length = 0

  /** Add a row; returns its index. */
  push(row: Row): number {
    const last = this.parts.at(-1)
    if (last?.rows) {
      last.rows.push(row)
      last.length += 1
    } else {
      const rows = [row]
      this.parts.push({ start: this.length, length: 1, rows, make: () => row })
    }
    this.length += 1
    return this.length - 1
  }

  pushStretch(length: number, make: (offset: number) => Row): void {
    if (length <= 0) return
    this.parts.push({ start: this.length, length, rows: null, make })
    this.length += length
  }

  at(index: number): Row | undefined {
    if (index < 0 || index >= this.length) return undefined
    let low = 0
    let high = this.parts.length - 1
    while (low < high) {
      const middle = (low + high + 1) >> 1
      if ((this.parts[middle]?.start ?? 0) <= index) low = middle
      else high = middle - 1
    }
    const part = this.parts[low]
    if (!part) return undefined
    return part.rows ? part.rows[index - part.start] : part.make(index - part.start)
  }

  /** All rows but those of stretches. */
  known(): Row[] {
    return this.parts.flatMap((part) => part.rows ?? [])
  }

  /** Where a row is that is not one of a stretch; −1 if it is none. */
  indexOf(key: string): number {
    for (const { start, rows } of this.parts) {
      const index = rows?.findIndex((row) => row.key === key) ?? -1
      if (index !== -1) return start + index
    }
    return -1
  }
}
