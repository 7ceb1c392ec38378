import { NumberInput, SegmentedControl, Select, Slider, Tooltip } from '@mantine/core'
import { useMemo, useState } from 'react'
import { useTranslation } from 'react-i18next'
import type { Session, TensorRecord, Which } from '~/api/types'
import type { Action } from '~/state/actions'
import { shortcutText } from '~/parts/shortcutText'
import { useActions } from '~/state/useActions'
import { absence } from './Absent'
import { MOST_DIGITS } from './formats'
import styles from './tensor.module.css'
import { tensorTexts } from './texts'
import { useTensorView, useTensorViews, type Presentation } from './views'

const WHICH: { value: Which; keys: string; text: string }[] = [
  { value: 'current', keys: 'shift+C', text: 'currentLong' },
  { value: 'previous', keys: 'shift+P', text: 'previousLong' },
  { value: 'difference', keys: 'shift+D', text: 'differenceLong' },
]
const PRESENTATIONS: { value: Presentation; keys: string; text: string }[] = [
  { value: 'heat-map', keys: 'shift+H', text: 'heatMapLong' },
  { value: 'table', keys: 'shift+T', text: 'tableLong' },
  { value: 'histogram', keys: 'shift+G', text: 'histogramLong' },
]

/** The choice of the value, its presentation, and the number format. */
export function Toolbar(props: { address: string; record: TensorRecord; session: Session | undefined }) {
  const { address, record, session } = props
  const { t } = useTranslation(tensorTexts)
  const view = useTensorView(address)
  const { change, format, setFormat } = useTensorViews()
  const { which, presentation, tolerance } = view

  const actions = useMemo<Action[]>(
    () => [
      ...WHICH.map(({ value, keys, text }): Action => {
        const reason = absence(record, value, session)
        return {
          id: `tensor.${value}`,
          label: t(text),
          keys,
          group: t('group'),
          disabled: value !== 'current' && reason === 'previous' ? t('absent.previous') : undefined,
          run: () => change(address, { which: value }),
        }
      }),
      ...PRESENTATIONS.map(({ value, keys, text }): Action => ({
        id: `tensor.${value}`,
        label: t(text),
        keys,
        group: t('group'),
        run: () => change(address, { presentation: value }),
      })),
    ],
    [address, record, session, change, t],
  )
  useActions(actions)

  const item = ({ value, keys, text }: { value: string; keys: string; text: string }) => ({
    value,
    label: (
      <Tooltip label={`${t(text)} (${shortcutText(keys)})`}>
        <span>{t(value)}</span>
      </Tooltip>
    ),
  })
  return (
    <div className={styles.toolbar} role="toolbar" aria-label={t('group')}>
      <SegmentedControl
        className={styles.segments ?? ''}
        aria-label={t('which')}
        value={which}
        onChange={(value) => change(address, { which: value as Which })}
        data={WHICH.map(item)}
        data-testid="tensor-which"
      />
      <SegmentedControl
        className={styles.segments ?? ''}
        aria-label={t('presentation')}
        value={presentation}
        onChange={(value) => change(address, { presentation: value as Presentation })}
        data={PRESENTATIONS.map(item)}
        data-testid="tensor-presentation"
      />
      <span className={styles.numbers}>
        <Select
          w={118}
          aria-label={t('notation')}
          allowDeselect={false}
          value={format.notation}
          onChange={(value) => setFormat({ notation: value ?? 'auto' })}
          data={(['auto', 'decimal', 'scientific'] as const).map((value) => ({ value, label: t(value) }))}
        />
        <Tooltip label={t(format.notation === 'auto' ? 'digitsAuto' : 'digitsPoint')}>
          <NumberInput
            w={52}
            aria-label={t('digits')}
            min={format.notation === 'auto' ? 1 : 0}
            max={MOST_DIGITS}
            clampBehavior="strict"
            allowDecimal={false}
            allowNegative={false}
            value={format.digits}
            onChange={(value) => {
              if (typeof value === 'number') setFormat({ digits: value })
            }}
          />
        </Tooltip>
      </span>
      {which === 'difference' && (
        <Tolerance
          key={tolerance}
          tolerance={tolerance}
          onChange={(value) => change(address, { tolerance: value })}
        />
      )}
    </div>
  )
}

/** A slider for the tolerance; it is applied when the user releases it, not at each pixel. */
function Tolerance({ tolerance, onChange }: { tolerance: number; onChange: (tolerance: number) => void }) {
  const { t } = useTranslation(tensorTexts)
  const [percent, setPercent] = useState(Math.round(tolerance * 100))
  return (
    <Tooltip label={t('toleranceLong')} multiline maw={260}>
      <span className={styles.tolerance}>
        <span>{t('tolerance')}</span>
        <Slider
          w={90}
          size="sm"
          label={null}
          thumbLabel={t('tolerance')}
          value={percent}
          onChange={setPercent}
          onChangeEnd={(value) => onChange(value / 100)}
        />
        <span className={`mono ${styles.percent ?? ''}`}>{percent} %</span>
      </span>
    </Tooltip>
  )
}
