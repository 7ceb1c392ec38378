import { ActionIcon, Tooltip, useComputedColorScheme } from '@mantine/core'
import { IconX } from '~/parts/icons'
import { useTranslation } from 'react-i18next'
import { useOffered } from '~/state/actions'
import { addedColour, addedScale, useAdded, useColouring, useLargestAdded, type Added } from './added'
import classes from './compare.module.css'
import { errorText } from './measures'
import { compareTexts } from './texts'

/** Describe an added error in words. */
export function useAddedText(added: Added | undefined): string {
  const { t } = useTranslation(compareTexts)
  if (!added) return ''
  const value = added.added === null ? t('beyond') : errorText(added.added)
  const divergent = added.divergent > 0 ? t('divergentIn', { count: added.divergent }) : ''
  return [t('addedIs', { value }), divergent].filter(Boolean).join(', ')
}

/** The mark in a tree row, coloured by the added error of a node, or by the largest in a scope. */
export function AddedMark({ paths }: { paths: readonly string[] }) {
  const added = useAdded(paths)
  const text = useAddedText(added)
  if (!added) return null
  return (
    <span
      className={classes['added-mark']}
      style={{ background: added.back, color: added.ink }}
      role="img"
      aria-label={text}
      title={text}
      data-testid="added-mark"
      data-divergent={added.divergent || undefined}
    >
      {added.divergent > 0 ? '≠' : ''}
    </span>
  )
}

/** The legend for the colours of tree and graph; nothing while they are not coloured. */
export function AddedLegend({ isStrip = false }: { isStrip?: boolean }) {
  const { t } = useTranslation(compareTexts)
  const theme = useComputedColorScheme('light', { getInitialValueInEffect: false })
  const of = useColouring((state) => state.of)
  const largest = useLargestAdded(of) ?? 0
  const colours = useOffered((offered) => offered.actions['compare.colours'])
  if (!of) return null
  const { low, high } = addedScale(largest)
  const stops = Array.from({ length: 11 }, (_, index) =>
    addedColour(low * (high / low) ** (index / 10), largest, theme),
  )
  return (
    <div
      className={`${classes['added-legend'] ?? ''} ${isStrip ? (classes['strip'] ?? '') : ''}`}
      data-testid="added-legend"
    >
      <Tooltip label={t('legendHint')} multiline maw={300}>
        <span>{t('legend', { step: of.step })}</span>
      </Tooltip>
      {largest > 0 ? (
        <>
          <span className="mono">≤ {errorText(low)}</span>
          <span
            className={classes['added-scale']}
            style={{ background: `linear-gradient(to right, ${stops.map(({ back }) => back).join(', ')})` }}
          />
          <span className="mono">{errorText(high)}</span>
        </>
      ) : (
        <span>{t('legendNone')}</span>
      )}
      {colours && (
        <Tooltip label={colours.label}>
          <ActionIcon size="xs" aria-label={colours.label} onClick={colours.run}>
            <IconX size={12} />
          </ActionIcon>
        </Tooltip>
      )}
    </div>
  )
}
