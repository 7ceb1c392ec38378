import { ActionIcon, Button, TextInput, Tooltip } from '@mantine/core'
import { IconArrowBackUp } from '~/parts/icons'
import { useState, type KeyboardEvent, type ReactNode } from 'react'
import { useTranslation } from 'react-i18next'
import { count } from '~/parts/numbers'
import { parseEntries, parseEntry } from './slices'
import styles from './tensor.module.css'
import { tensorTexts } from './texts'

/** A text field for each dimension; the slice changes when the input is applied, if it is valid. */
export function Dimensions(props: {
  shape: readonly number[]
  entries: readonly string[]
  /** The slice shown if none is chosen. */
  first: readonly string[]
  onApply: (entries: string[] | null) => void
  /** Content after the fields. */
  children: ReactNode
}) {
  const { shape, entries, first, onApply } = props
  const { t } = useTranslation(tensorTexts)
  const [typed, setTyped] = useState<readonly string[]>(entries)
  const [shown, setShown] = useState(entries)
  if (shown.join() !== entries.join()) {
    // Another slice was chosen elsewhere, for instance by a zoom.
    setShown(entries)
    setTyped(entries)
  }
  const parsed = parseEntries(typed, shape)
  const problem = 'key' in parsed ? parsed : null
  const isChanged = typed.some((text, dimension) => text.trim() !== entries[dimension])
  const isFirst = first.every((text, dimension) => text === entries[dimension])
  const apply = (texts: readonly string[]) => {
    if (!('key' in parseEntries(texts, shape))) onApply(texts.map((text) => text.trim()))
  }
  const pressed = (event: KeyboardEvent, dimension: number) => {
    if (event.key === 'Enter') apply(typed)
    else if (event.key === 'Escape') setTyped(entries)
    else if (event.key === 'ArrowUp' || event.key === 'ArrowDown') {
      const length = shape[dimension] ?? 0
      const entry = parseEntry(typed[dimension] ?? '', dimension, length)
      if (!('kind' in entry) || entry.kind !== 'index') return
      event.preventDefault()
      const index = entry.index + (event.key === 'ArrowUp' ? 1 : -1)
      if (index < 0 || index >= length) return
      const next = typed.map((text, number) => (number === dimension ? String(index) : text))
      setTyped(next)
      apply(next)
    }
  }
  return (
    <div className={styles.dimensions} role="group" aria-label={t('slice')}>
      {shape.map((length, dimension) => (
        <Tooltip key={dimension} label={t('dimensionHelp')} multiline maw={280} openDelay={700}>
          <TextInput
            label={
              <>
                {t('dimension', { dimension })} <span className={styles.quiet}>/ {count(length)}</span>
              </>
            }
            aria-label={t('dimensionLong', { dimension, length })}
            classNames={{
              root: styles.box ?? '',
              label: styles.boxLabel ?? '',
              input: styles.boxInput ?? '',
            }}
            value={typed[dimension] ?? ''}
            styles={{
              input: { width: `calc(${Math.max(6, (typed[dimension] ?? '').length + 1)}ch + 22px)` },
            }}
            error={problem?.dimension === dimension}
            onChange={(event) => {
              const text = event.currentTarget.value
              setTyped(typed.map((value, number) => (number === dimension ? text : value)))
            }}
            onKeyDown={(event) => pressed(event, dimension)}
          />
        </Tooltip>
      ))}
      {shape.length > 0 && (
        <Button
          size="compact-sm"
          fz="sm"
          variant="default"
          disabled={!isChanged || problem !== null}
          onClick={() => apply(typed)}
        >
          {t('apply')}
        </Button>
      )}
      {shape.length > 0 && (
        <Tooltip label={isChanged ? t('revert') : t('reset')}>
          <ActionIcon
            size={26}
            variant="default"
            aria-label={isChanged ? t('revert') : t('reset')}
            disabled={!isChanged && isFirst}
            onClick={() => {
              if (isChanged) setTyped(entries)
              else onApply(null)
            }}
          >
            <IconArrowBackUp size={16} />
          </ActionIcon>
        </Tooltip>
      )}
      {props.children}
      {problem && (
        <span role="alert" className={styles.problem}>
          {t(`sliceError.${problem.key}`, { dimension: problem.dimension, ...problem.values })}
        </span>
      )}
    </div>
  )
}
