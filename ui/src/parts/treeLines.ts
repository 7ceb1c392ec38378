/** A row of a tree, wherever it is drawn. */
export interface TreeLine {
  /** Unique among the rows. */
  key: string
  depth: number
  /** Index of the parent row; −1 at the top. */
  parent: number
  /** Position among the siblings, from 1, and their number. */
  nth: number
  siblings: number
  /** Null: the row cannot be opened. */
  isOpen?: boolean | null
}

interface Part<Row> {
  start: number
  length: number
  rows: Row[] | null
  make: (offset: number) => Row
}

/**
 * The rows of a tree from top to bottom. Rows that are not loaded yet are a stretch, created on access: of a scope
 * with 100,000 nodes, only those that were visible exist.
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

  /** Return all rows except those of stretches. */
  loadedRows(): Row[] {
    return this.parts.flatMap((part) => part.rows ?? [])
  }

  /** Return the index of a loaded row; −1 if there is none with this key. */
  indexOf(key: string): number {
    for (const { start, rows } of this.parts) {
      const index = rows?.findIndex((row) => row.key === key) ?? -1
      if (index !== -1) return start + index
    }
    return -1
  }
}
