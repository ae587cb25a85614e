package inspect

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
)

// seal encrypts texts that can contain a key, for pages whose readers may not see keys.
// Opening or creating a sealed text needs the Inspector's secret.
type seal struct{ box cipher.AEAD }

func newSeal(in *Inspector) seal {
	block, err := aes.NewCipher(in.derive("seal"))
	if err != nil {
		panic(err) // cannot happen: 32 bytes are a valid key
	}
	box, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // cannot happen: the cipher is AES
	}
	return seal{box}
}

// close seals text for one purpose, and open opens a text that was sealed for the same
// purpose.
func (s seal) close(use, text string) string {
	return base64.RawURLEncoding.EncodeToString(s.box.Seal(nil, nil, []byte(text), []byte(use)))
}

func (s seal) open(use, sealed string) (text string, ok bool) {
	raw, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil {
		return "", false
	}
	plain, err := s.box.Open(nil, nil, raw, []byte(use))
	return string(plain), err == nil
}
